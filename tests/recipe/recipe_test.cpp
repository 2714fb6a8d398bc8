#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <set>

#include "lowtide/recipe/keys.h"
#include "lowtide/schedule/cycles.h"
#include "tests/io/scratch.h"
#include "tests/recipe/recipes.h"

namespace lowtide {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// One that passes check().
Recipe possible() {
  Recipe recipe;
  recipe.data.dir = "/data";
  recipe.training.steps = 1000;
  return recipe;
}

TEST(Recipe, TheUnusualOneDiffersInEveryKey) {
  const Json usual = to_json(Recipe()), other = to_json(unusual_recipe());
  for (const auto& [key, value] : usual.items()) EXPECT_NE(value, other.at(key)) << key;
}

TEST(RecipeKeys, EachHasANameOfItsOwnAndADefaultThatItAccepts) {
  Recipe recipe = possible();
  std::set<std::string> names;
  for (const RecipeKey& key : recipe_keys(recipe)) {
    EXPECT_TRUE(names.insert(key.name).second) << key.name;
    EXPECT_FALSE(key.help.empty() || key.group.empty()) << key.name;
  }
  EXPECT_NO_THROW(check(recipe));
}

TEST(RecipeKeys, ARangeIsToldInWords) {
  EXPECT_EQ((Accepted{.low = 0}.range_text()), "0 or more");
  EXPECT_EQ((Accepted{.low = 0, .open_low = true}.range_text()), "a number above 0");
  EXPECT_EQ((Accepted{.low = 0, .high = 7, .open_low = true}.range_text()), "a number above 0, at most 7");
  EXPECT_EQ((Accepted{.low = 0, .high = 1, .open_high = true}.range_text()), "0 or more, below 1");
  EXPECT_EQ((Accepted{.low = 1, .high = 1e15}.range_text()), "1 to 1000000000000000");
}

TEST(RecipeJson, GivesTheSameRecipeBack) {
  for (const Recipe& recipe : {Recipe(), unusual_recipe()}) {
    const Json json = to_json(recipe);
    EXPECT_EQ(to_json(recipe_from_json(json, "here")), json);
    EXPECT_EQ(to_json(recipe_from_json(Json::parse(json.dump()), "here")), json) << "through text";
  }
}

// Without the keys of how it ran.
const std::vector<std::string> kFirstKeys{
    "data",      "data-dir",    "validation", "augment",      "padding",
    "flip",      "image-size",  "resize",     "mean",         "std",
    "model",     "schedule",    "bits",       "grad-bits",    "cycles",
    "k",         "c",           "eval-bits",  "layer-bits",   "grad-rounding",
    "bifurcate", "engine",      "steps",      "epochs",       "batch",
    "optimizer", "lr",          "momentum",   "weight-decay", "betas",
    "clip",      "lr-schedule", "lr-steps",   "lr-gamma",     "lr-final",
    "warmup",    "swa-start",   "swa-every",  "seed"};

TEST(RecipeJson, KeysThatCameAfterTheFirstVersionTakeTheirDefaults) {
  const Json usual = to_json(Recipe());
  Json first = Json::object();
  for (const std::string& key : kFirstKeys) first[key] = usual.at(key);
  EXPECT_EQ(to_json(recipe_from_json(first, "here")), usual);
  for (const std::string& key : kFirstKeys) {
    Json lacking = first;
    lacking.erase(key);
    EXPECT_TRUE(contains(user_error([&] { recipe_from_json(lacking, "here"); }), "no key '" + key + "'"));
  }
}

TEST(RecipeJson, WhatIsWrongIsToldWithItsPlace) {
  const auto reading = [](const std::function<void(Json&)>& damage) {
    Json json = to_json(Recipe());
    damage(json);
    return user_error([&] { recipe_from_json(json, "runs/one/run.json"); });
  };
  const std::string where = "runs/one/run.json";
  EXPECT_TRUE(contains(reading([](Json& j) { j["stepz"] = 5; }), where, "unknown key 'stepz'"));
  EXPECT_TRUE(contains(reading([](Json& j) { j.erase("lr"); }), where, "no key 'lr'"));
  EXPECT_TRUE(contains(reading([](Json& j) { j["lr"] = "fast"; }), where, "'lr' is \"fast\"", "wrong type"));
  EXPECT_TRUE(contains(reading([](Json& j) { j["mean"] = 1; }), where, "'mean' is 1", "wrong type"));
  EXPECT_TRUE(contains(reading([](Json& j) { j = Json::array(); }), where, "not a JSON object"));
}

TEST(RecipeJson, HowItRunsMayBeMissing) {
  Json json = to_json(Recipe());
  json.erase("threads");
  json.erase("log-every");
  EXPECT_EQ(recipe_from_json(json, "here").running.log_every, Recipe().running.log_every);
}

TEST(RecipeDifferences, AreTheKeysThatMakeAResult) {
  EXPECT_TRUE(differences(Recipe(), Recipe()).empty());
  Recipe other;
  other.running.threads = 7;
  other.running.log_every = other.running.eval_every = other.running.checkpoint_every = 1;
  other.running.layer_stats = 1;
  other.running.keep_checkpoints = 1;
  other.running.loader_threads = 4;
  other.running.gpu_memory = 0.5;
  EXPECT_TRUE(differences(Recipe(), other).empty()) << "none of these changes a result";
  other.running.device = "cuda";
  other.running.tf32 = true;
  EXPECT_TRUE(differences(Recipe(), other).empty()) << "a run may go on with these, and says so";
  other.training.lr = 1;
  other.training.seed = 2;
  EXPECT_EQ(differences(Recipe(), other), (std::vector<std::string>{"lr", "seed"}));
}

TEST(RecipeDifferences, AmongOtherEvaluationsIsAnotherBest) {
  Recipe recipe, other;
  recipe.training.keep_best = other.training.keep_best = true;
  EXPECT_TRUE(differences(recipe, other).empty());
  other.running.eval_every = 1;
  EXPECT_EQ(differences(recipe, other), (std::vector<std::string>{"eval-every"}));
  other.training.keep_best = false;
  EXPECT_EQ(differences(recipe, other), (std::vector<std::string>{"keep-best"}));
  EXPECT_EQ(differences(other, recipe), (std::vector<std::string>{"keep-best"}));
}

struct Impossible {
  const char* name;
  void (*change)(Recipe&);
  std::vector<const char*> message;
};

class ImpossibleRecipe : public testing::TestWithParam<Impossible> {};

TEST_P(ImpossibleRecipe, IsTold) {
  Recipe recipe = possible();
  ASSERT_NO_THROW(check(recipe));
  GetParam().change(recipe);
  const std::string message = user_error([&] { check(recipe); });
  for (const char* part : GetParam().message) EXPECT_TRUE(contains(message, part));
}

const std::vector<Impossible> kImpossible{
    {"Data", [](Recipe& r) { r.data.format = "mnist"; }, {"data is 'mnist'", "idx", "cifar10", "folder"}},
    {"DataDir", [](Recipe& r) { r.data.dir = ""; }, {"data-dir is empty", "--data-dir"}},
    {"Augment", [](Recipe& r) { r.data.augment = "crop"; }, {"augment is 'crop'", "pad-crop"}},
    {"Rounding", [](Recipe& r) { r.precision.grad_rounding = "up"; }, {"grad-rounding is 'up'", "nearest"}},
    {"Device", [](Recipe& r) { r.running.device = "tpu"; }, {"device is 'tpu'", "cuda"}},
    {"Validation", [](Recipe& r) { r.data.validation = -1; }, {"validation is -1"}},
    {"Padding", [](Recipe& r) { r.data.padding = -1; }, {"padding is -1"}},
    {"ImageSize", [](Recipe& r) { r.data.image_size = -1; }, {"image-size is -1"}},
    {"Resize", [](Recipe& r) { r.data.resize = -1; }, {"resize is -1"}},
    {"EvalBitsOne", [](Recipe& r) { r.precision.eval_bits = 1; }, {"eval-bits is 1", "2 to 32"}},
    {"EvalBitsMany", [](Recipe& r) { r.precision.eval_bits = 33; }, {"eval-bits is 33"}},
    {"Threads", [](Recipe& r) { r.running.threads = -1; }, {"threads is -1"}},
    {"LoaderThreads", [](Recipe& r) { r.running.loader_threads = -1; }, {"loader-threads is -1"}},
    {"LayerStats", [](Recipe& r) { r.running.layer_stats = -1; }, {"layer-stats is -1", "0 or more"}},
    {"LogEvery", [](Recipe& r) { r.running.log_every = 0; }, {"log-every is 0", "1 or more"}},
    {"EvalEvery", [](Recipe& r) { r.running.eval_every = -1; }, {"eval-every is -1"}},
    {"CheckpointEvery", [](Recipe& r) { r.running.checkpoint_every = -1; }, {"checkpoint-every is -1"}},
    {"KeepCheckpoints", [](Recipe& r) { r.running.keep_checkpoints = 0; }, {"keep-checkpoints is 0"}},
    {"Steps", [](Recipe& r) { r.training.steps = -5; }, {"steps is -5"}},
    {"StepsAndEpochs", [](Recipe& r) { r.training.steps = 0; }, {"steps is 0", "epochs"}},
    {"Epochs", [](Recipe& r) { r.training.epochs = kInfinity; }, {"epochs is inf"}},
    {"Batch", [](Recipe& r) { r.training.batch = 0; }, {"batch is 0"}},
    {"LrZero", [](Recipe& r) { r.training.lr = 0; }, {"lr is 0"}},
    {"LrNan", [](Recipe& r) { r.training.lr = kNan; }, {"lr is nan"}},
    {"Momentum", [](Recipe& r) { r.training.momentum = 1; }, {"momentum is 1", "below 1"}},
    {"MomentumNan", [](Recipe& r) { r.training.momentum = kNan; }, {"momentum is nan"}},
    {"Decay", [](Recipe& r) { r.training.weight_decay = -1e-4; }, {"weight-decay is -0.0001"}},
    {"DecayInfinite", [](Recipe& r) { r.training.weight_decay = kInfinity; }, {"weight-decay is inf"}},
    {"Betas", [](Recipe& r) { r.training.betas = {0.9}; }, {"betas is 0.9", "two numbers"}},
    {"BetasOne",
     [](Recipe& r) {
       r.training.betas = {0.9, 1};
     },
     {"betas is 0.9 1"}},
    {"Clip", [](Recipe& r) { r.training.clip = -1; }, {"clip is -1"}},
    {"ClipHuge", [](Recipe& r) { r.training.clip = 1e308; }, {"clip is 1e+308", "3.4e38"}},
    {"MeanHuge", [](Recipe& r) { r.data.mean = {1e39}; }, {"mean is 1e+39", "3.4e38"}},
    {"BatchHuge", [](Recipe& r) { r.training.batch = 4294967297; }, {"batch is 4294967297", "1 to 16777216"}},
    {"StepsHuge",
     [](Recipe& r) { r.training.steps = INT64_MAX; },
     {"steps is 9223372036854775807", "0 to 1000000000000000"}},
    {"HiddenHuge", [](Recipe& r) { r.model.hidden = INT64_MAX; }, {"hidden is", "1 to 1048576"}},
    {"LayersHuge", [](Recipe& r) { r.model.layers = 1000000; }, {"layers is 1000000", "1 to 1024"}},
    {"ThreadsHuge", [](Recipe& r) { r.running.threads = 1000000; }, {"threads is 1000000", "0 to 1024"}},
    {"PaddingHuge", [](Recipe& r) { r.data.padding = INT32_MAX; }, {"padding is", "0 to 65535"}},
    {"MilestoneHuge", [](Recipe& r) { r.training.lr_steps = {1e30}; }, {"lr-steps is 1e+30", "at most"}},
    {"ClipInfinite", [](Recipe& r) { r.training.clip = kInfinity; }, {"clip is inf"}},
    {"LrDelay", [](Recipe& r) { r.training.lr_delay = -1; }, {"lr-delay is -1"}},
    {"Warmup", [](Recipe& r) { r.training.warmup = -1; }, {"warmup is -1"}},
    {"Gamma", [](Recipe& r) { r.training.lr_gamma = 0; }, {"lr-gamma is 0"}},
    {"GammaInfinite", [](Recipe& r) { r.training.lr_gamma = kInfinity; }, {"lr-gamma is inf"}},
    {"Final", [](Recipe& r) { r.training.lr_final = 1.5; }, {"lr-final is 1.5", "0 to 1"}},
    {"Milestone",
     [](Recipe& r) {
       r.training.lr_steps = {0.5, 0};
     },
     {"lr-steps is 0"}},
    {"MilestoneInfinite", [](Recipe& r) { r.training.lr_steps = {kInfinity}; }, {"lr-steps is inf"}},
    {"NoMilestone", [](Recipe& r) { r.training.lr_steps = {}; }, {"lr-steps is empty"}},
    {"MeanNan",
     [](Recipe& r) {
       r.data.mean = {0, kNan};
     },
     {"mean is nan", "finite"}},
    {"CNan", [](Recipe& r) { r.precision.c = kNan; }, {"c is nan", "finite"}},
    {"NotUtf8", [](Recipe& r) { r.data.dir = "/a\xff"; }, {"data-dir", "UTF-8"}},
    {"SwaStart", [](Recipe& r) { r.training.swa_start = 2; }, {"swa-start is 2"}},
    {"Patience", [](Recipe& r) { r.training.patience = -1; }, {"patience is -1"}},
    {"PatienceWithoutEvaluations",
     [](Recipe& r) {
       r.training.patience = 3;
       r.running.eval_every = 0;
     },
     {"eval-every is 0", "patience"}},
    {"KeepBestWithoutEvaluations",
     [](Recipe& r) {
       r.training.keep_best = true;
       r.running.eval_every = 0;
     },
     {"eval-every is 0", "keep-best"}},
    {"InputDropout", [](Recipe& r) { r.model.input_dropout = 1; }, {"input-dropout is 1", "below 1"}},
    {"Norm", [](Recipe& r) { r.model.norm = "batch"; }, {"norm is 'batch'", "tensor, none"}},
    {"NormThatIsNotThere",
     [](Recipe& r) {
       r.model.norm = "none";
       r.model.quantize_norm = true;
     },
     {"quantize-norm is true", "norm none"}},
    {"SwaEvery", [](Recipe& r) { r.training.swa_every = 0; }, {"swa-every is 0"}},
    {"Optimizer", [](Recipe& r) { r.training.optimizer = "lion"; }, {"optimizer is 'lion'", "sgd, adam"}},
    {"LrSchedule", [](Recipe& r) { r.training.lr_schedule = "poly"; }, {"lr-schedule is 'poly'", "cosine"}},
    {"Tokens", [](Recipe& r) { r.data.tokens = "bytes"; }, {"tokens is 'bytes'", "characters"}},
    {"MinCount", [](Recipe& r) { r.data.min_count = 0; }, {"min-count is 0"}},
    {"Classes", [](Recipe& r) { r.data.classes = {"cat"}; }, {"classes is given", "voc or pairs, not idx"}},
    {"ClassTwice",
     [](Recipe& r) {
       r.data.format = "voc";
       r.data.classes = {"cat", "dog", "cat"};
     },
     {"classes is 'cat' twice"}},
    {"ClassEmpty", [](Recipe& r) { r.data.classes = {""}; }, {"classes is \"\"", "names"}},
    {"ClassAList", [](Recipe& r) { r.data.classes = {"[a,b]"}; }, {"classes is \"[a,b]\""}},
    {"ClassOfTwoLines", [](Recipe& r) { r.data.classes = {"a\nb"}; }, {"classes is \"a\\nb\""}},
    {"Columns",
     [](Recipe& r) {
       r.data.columns = {"1", "2"};
     },
     {"columns is 2 names", "three"}},
    {"SkipDamaged", [](Recipe& r) { r.data.skip_damaged = true; }, {"skip-damaged is true", "voc, not idx"}},
    {"TestLanguage",
     [](Recipe& r) { r.data.test_language = "de"; },
     {"test-language is 'de'", "xnli, not idx"}},
    {"Schedule", [](Recipe& r) { r.precision.schedule = "XX"; }, {"XX", "RR"}},
    {"Bits", [](Recipe& r) { r.precision.bits = "8:3"; }, {"8:3", "wrong way round"}},
    {"BitsText", [](Recipe& r) { r.precision.bits = "low"; }, {"low"}},
    {"GradBits", [](Recipe& r) { r.precision.grad_bits = "1"; }, {"grad", "1"}},
    {"Cycles", [](Recipe& r) { r.precision.cycles = 0; }, {"n=0"}},
    {"K", [](Recipe& r) { r.precision.schedule = "ER", r.precision.k = -1; }, {"k=-1"}},
    {"LayerBits", [](Recipe& r) { r.precision.layer_bits = {"conv1"}; }, {"conv1"}},
    {"LayerBitsNumber", [](Recipe& r) { r.precision.layer_bits = {"conv1=99"}; }, {"99"}},
};

INSTANTIATE_TEST_SUITE_P(Values, ImpossibleRecipe, testing::ValuesIn(kImpossible),
                         [](const testing::TestParamInfo<Impossible>& tested) { return tested.param.name; });

TEST(ScheduleOf, EveryCyclicNameIsCompletedByTheRecipe) {
  for (const CyclicSchedule& cyclic : cyclic_schedules()) {
    Recipe recipe = possible();
    recipe.precision.schedule = cyclic.name;
    recipe.precision.bits = "4:7";
    recipe.precision.grad_bits = "6:8";
    recipe.precision.cycles = 6;
    recipe.precision.k = 3;
    recipe.precision.c = 0.25;
    const ScheduleSpec spec = schedule_of(recipe.precision);
    EXPECT_EQ(spec.name, cyclic.name);
    EXPECT_EQ(spec.bits, (BitRange{4, 7}));
    EXPECT_EQ(spec.grad, (BitRange{6, 8}));
    EXPECT_EQ(spec.cycles, 6);
    EXPECT_EQ(spec.k, cyclic.profile == Profile::kExponential ? 3 : ScheduleSpec().k);
    EXPECT_EQ(spec.c, cyclic.profile == Profile::kRex ? 0.25 : ScheduleSpec().c);
    EXPECT_NO_THROW(check(recipe));
  }
}

TEST(ScheduleOf, StaticHasTheHighestBits) {
  Recipe recipe;
  recipe.precision.schedule = "static";
  recipe.precision.bits = "3:6";
  EXPECT_EQ(schedule_of(recipe.precision), parse_schedule("static 6 grad=8"));
  recipe.precision.bits = "5";
  recipe.precision.grad_bits = "4";
  EXPECT_EQ(schedule_of(recipe.precision), parse_schedule("static 5 grad=4"));
}

TEST(ScheduleOf, Fp32TakesNothing) {
  Recipe recipe;
  recipe.precision.schedule = "fp32";
  EXPECT_EQ(schedule_of(recipe.precision), parse_schedule("fp32"));
}

TEST(ScheduleOf, AWholeLineSaysAllOfIt) {
  for (const char* line : {"RR 2:5 n=3 grad=6", "deficit 3:8 grad=8 steps=100", "window 3:8 from=10 to=20",
                           "delayed 25% at=fp32 CR 3:8 n=4", "progressive 3,4,8 patience=2", "static 7"}) {
    Recipe recipe;
    recipe.precision.schedule = line;
    EXPECT_EQ(schedule_of(recipe.precision), parse_schedule(line)) << line;
  }
}

TEST(ScheduleOf, TheOthersNeedTheirWholeLine) {
  for (const char* name : {"deficit", "window", "progressive", "delayed"}) {
    Recipe recipe;
    recipe.precision.schedule = name;
    EXPECT_FALSE(user_error([&] { schedule_of(recipe.precision); }).empty()) << name;
  }
}

}  // namespace
}  // namespace lowtide
