#include "lowtide/train/recipe.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "lowtide/schedule/cycles.h"
#include "tests/io/scratch.h"
#include "tests/train/recipes.h"

namespace lowtide {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// One that passes check().
Recipe possible() {
  Recipe recipe;
  recipe.data_dir = "/data";
  recipe.steps = 1000;
  return recipe;
}

TEST(Recipe, TheUnusualOneDiffersInEveryKey) {
  const Json usual = to_json(Recipe()), other = to_json(unusual_recipe());
  for (const auto& [key, value] : usual.items()) EXPECT_NE(value, other.at(key)) << key;
}

TEST(RecipeJson, GivesTheSameRecipeBack) {
  for (const Recipe& recipe : {Recipe(), unusual_recipe()}) {
    const Json json = to_json(recipe);
    EXPECT_EQ(to_json(recipe_from_json(json, "here")), json);
    EXPECT_EQ(to_json(recipe_from_json(Json::parse(json.dump()), "here")), json) << "through text";
  }
}

TEST(RecipeJson, KeysThatCameLaterTakeTheirDefaults) {
  Json json = to_json(Recipe());
  for (const char* key : {"hidden", "dropout", "plateau-every", "weights", "fan-out", "input-dropout", "norm",
                          "decay-layers", "keep-best", "patience"})
    json.erase(key);
  EXPECT_EQ(to_json(recipe_from_json(json, "here")), to_json(Recipe()));
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
  EXPECT_EQ(recipe_from_json(json, "here").log_every, Recipe().log_every);
}

TEST(RecipeDifferences, AreTheKeysThatMakeAResult) {
  EXPECT_TRUE(differences(Recipe(), Recipe()).empty());
  Recipe other;
  other.threads = 7;
  other.device = "cuda";
  other.log_every = other.eval_every = other.checkpoint_every = 1;
  other.keep_checkpoints = 1;
  other.loader_threads = 4;
  EXPECT_TRUE(differences(Recipe(), other).empty()) << "none of these changes a result";
  other.lr = 1;
  other.seed = 2;
  EXPECT_EQ(differences(Recipe(), other), (std::vector<std::string>{"lr", "seed"}));
}

TEST(RecipeDifferences, AmongOtherEvaluationsIsAnotherBest) {
  Recipe recipe, other;
  recipe.keep_best = other.keep_best = true;
  EXPECT_TRUE(differences(recipe, other).empty());
  other.eval_every = 1;
  EXPECT_EQ(differences(recipe, other), (std::vector<std::string>{"eval-every"}));
  other.keep_best = false;
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
    {"Data", [](Recipe& r) { r.data = "mnist"; }, {"data is 'mnist'", "idx", "cifar10", "folder"}},
    {"DataDir", [](Recipe& r) { r.data_dir = ""; }, {"data-dir is empty", "--data-dir"}},
    {"Augment", [](Recipe& r) { r.augment = "crop"; }, {"augment is 'crop'", "pad-crop"}},
    {"Rounding", [](Recipe& r) { r.grad_rounding = "up"; }, {"grad-rounding is 'up'", "nearest"}},
    {"Device", [](Recipe& r) { r.device = "tpu"; }, {"device is 'tpu'", "cuda"}},
    {"Validation", [](Recipe& r) { r.validation = -1; }, {"validation is -1"}},
    {"Padding", [](Recipe& r) { r.padding = -1; }, {"padding is -1"}},
    {"ImageSize", [](Recipe& r) { r.image_size = -1; }, {"image-size is -1"}},
    {"Resize", [](Recipe& r) { r.resize = -1; }, {"resize is -1"}},
    {"EvalBitsOne", [](Recipe& r) { r.eval_bits = 1; }, {"eval-bits is 1", "2 to 32"}},
    {"EvalBitsMany", [](Recipe& r) { r.eval_bits = 33; }, {"eval-bits is 33"}},
    {"Threads", [](Recipe& r) { r.threads = -1; }, {"threads is -1"}},
    {"LoaderThreads", [](Recipe& r) { r.loader_threads = -1; }, {"loader-threads is -1"}},
    {"LogEvery", [](Recipe& r) { r.log_every = 0; }, {"log-every is 0", "1 or more"}},
    {"EvalEvery", [](Recipe& r) { r.eval_every = -1; }, {"eval-every is -1"}},
    {"CheckpointEvery", [](Recipe& r) { r.checkpoint_every = -1; }, {"checkpoint-every is -1"}},
    {"KeepCheckpoints", [](Recipe& r) { r.keep_checkpoints = 0; }, {"keep-checkpoints is 0"}},
    {"Steps", [](Recipe& r) { r.steps = -5; }, {"steps is -5"}},
    {"StepsAndEpochs", [](Recipe& r) { r.steps = 0; }, {"steps is 0", "epochs"}},
    {"Epochs", [](Recipe& r) { r.epochs = kInfinity; }, {"epochs is inf"}},
    {"Batch", [](Recipe& r) { r.batch = 0; }, {"batch is 0"}},
    {"LrZero", [](Recipe& r) { r.lr = 0; }, {"lr is 0"}},
    {"LrNan", [](Recipe& r) { r.lr = kNan; }, {"lr is nan"}},
    {"Momentum", [](Recipe& r) { r.momentum = 1; }, {"momentum is 1", "below 1"}},
    {"MomentumNan", [](Recipe& r) { r.momentum = kNan; }, {"momentum is nan"}},
    {"Decay", [](Recipe& r) { r.weight_decay = -1e-4; }, {"weight-decay is -0.0001"}},
    {"DecayInfinite", [](Recipe& r) { r.weight_decay = kInfinity; }, {"weight-decay is inf"}},
    {"Betas", [](Recipe& r) { r.betas = {0.9}; }, {"betas is 0.9", "two numbers"}},
    {"BetasOne",
     [](Recipe& r) {
       r.betas = {0.9, 1};
     },
     {"betas is 0.9 1"}},
    {"Clip", [](Recipe& r) { r.clip = -1; }, {"clip is -1"}},
    {"ClipHuge", [](Recipe& r) { r.clip = 1e308; }, {"clip is 1e+308", "3.4e38"}},
    {"MeanHuge", [](Recipe& r) { r.mean = {1e39}; }, {"mean is 1e+39", "3.4e38"}},
    {"BatchHuge", [](Recipe& r) { r.batch = 4294967297; }, {"batch is 4294967297", "1 to 16777216"}},
    {"StepsHuge",
     [](Recipe& r) { r.steps = INT64_MAX; },
     {"steps is 9223372036854775807", "0 to 1000000000000000"}},
    {"HiddenHuge", [](Recipe& r) { r.hidden = INT64_MAX; }, {"hidden is", "1 to 1048576"}},
    {"LayersHuge", [](Recipe& r) { r.layers = 1000000; }, {"layers is 1000000", "1 to 1024"}},
    {"ThreadsHuge", [](Recipe& r) { r.threads = 1000000; }, {"threads is 1000000", "0 to 1024"}},
    {"PaddingHuge", [](Recipe& r) { r.padding = INT32_MAX; }, {"padding is", "0 to 65535"}},
    {"MilestoneHuge", [](Recipe& r) { r.lr_steps = {1e30}; }, {"lr-steps is 1e+30", "at most"}},
    {"ClipInfinite", [](Recipe& r) { r.clip = kInfinity; }, {"clip is inf"}},
    {"LrDelay", [](Recipe& r) { r.lr_delay = -1; }, {"lr-delay is -1"}},
    {"Warmup", [](Recipe& r) { r.warmup = -1; }, {"warmup is -1"}},
    {"Gamma", [](Recipe& r) { r.lr_gamma = 0; }, {"lr-gamma is 0"}},
    {"GammaInfinite", [](Recipe& r) { r.lr_gamma = kInfinity; }, {"lr-gamma is inf"}},
    {"Final", [](Recipe& r) { r.lr_final = 1.5; }, {"lr-final is 1.5", "0 to 1"}},
    {"Milestone",
     [](Recipe& r) {
       r.lr_steps = {0.5, 0};
     },
     {"lr-steps is 0"}},
    {"MilestoneInfinite", [](Recipe& r) { r.lr_steps = {kInfinity}; }, {"lr-steps is inf"}},
    {"NoMilestone", [](Recipe& r) { r.lr_steps = {}; }, {"lr-steps is empty"}},
    {"MeanNan",
     [](Recipe& r) {
       r.mean = {0, kNan};
     },
     {"mean is nan", "finite"}},
    {"CNan", [](Recipe& r) { r.c = kNan; }, {"c is nan", "finite"}},
    {"NotUtf8", [](Recipe& r) { r.data_dir = "/a\xff"; }, {"data-dir", "UTF-8"}},
    {"SwaStart", [](Recipe& r) { r.swa_start = 2; }, {"swa-start is 2"}},
    {"Patience", [](Recipe& r) { r.patience = -1; }, {"patience is -1"}},
    {"PatienceWithoutEvaluations",
     [](Recipe& r) {
       r.patience = 3;
       r.eval_every = 0;
     },
     {"eval-every is 0", "patience"}},
    {"KeepBestWithoutEvaluations",
     [](Recipe& r) {
       r.keep_best = true;
       r.eval_every = 0;
     },
     {"eval-every is 0", "keep-best"}},
    {"InputDropout", [](Recipe& r) { r.input_dropout = 1; }, {"input-dropout is 1", "below 1"}},
    {"Norm", [](Recipe& r) { r.norm = "batch"; }, {"norm is 'batch'", "tensor, none"}},
    {"NormThatIsNotThere",
     [](Recipe& r) {
       r.norm = "none";
       r.quantize_norm = true;
     },
     {"quantize-norm is true", "norm none"}},
    {"SwaEvery", [](Recipe& r) { r.swa_every = 0; }, {"swa-every is 0"}},
    {"Optimizer", [](Recipe& r) { r.optimizer = "lion"; }, {"optimizer is 'lion'", "sgd, adam"}},
    {"LrSchedule", [](Recipe& r) { r.lr_schedule = "poly"; }, {"lr-schedule is 'poly'", "cosine"}},
    {"Tokens", [](Recipe& r) { r.tokens = "bytes"; }, {"tokens is 'bytes'", "characters"}},
    {"MinCount", [](Recipe& r) { r.min_count = 0; }, {"min-count is 0"}},
    {"Classes", [](Recipe& r) { r.classes = {"cat"}; }, {"classes is given", "voc or pairs, not idx"}},
    {"ClassTwice",
     [](Recipe& r) {
       r.data = "voc";
       r.classes = {"cat", "dog", "cat"};
     },
     {"classes is 'cat' twice"}},
    {"ClassEmpty", [](Recipe& r) { r.classes = {""}; }, {"classes is \"\"", "names"}},
    {"ClassAList", [](Recipe& r) { r.classes = {"[a,b]"}; }, {"classes is \"[a,b]\""}},
    {"ClassOfTwoLines", [](Recipe& r) { r.classes = {"a\nb"}; }, {"classes is \"a\\nb\""}},
    {"Columns",
     [](Recipe& r) {
       r.columns = {"1", "2"};
     },
     {"columns is 2 names", "three"}},
    {"SkipDamaged", [](Recipe& r) { r.skip_damaged = true; }, {"skip-damaged is true", "voc, not idx"}},
    {"TestLanguage", [](Recipe& r) { r.test_language = "de"; }, {"test-language is 'de'", "xnli, not idx"}},
    {"Schedule", [](Recipe& r) { r.schedule = "XX"; }, {"XX", "RR"}},
    {"Bits", [](Recipe& r) { r.bits = "8:3"; }, {"8:3", "wrong way round"}},
    {"BitsText", [](Recipe& r) { r.bits = "low"; }, {"low"}},
    {"GradBits", [](Recipe& r) { r.grad_bits = "1"; }, {"grad", "1"}},
    {"Cycles", [](Recipe& r) { r.cycles = 0; }, {"n=0"}},
    {"K", [](Recipe& r) { r.schedule = "ER", r.k = -1; }, {"k=-1"}},
    {"LayerBits", [](Recipe& r) { r.layer_bits = {"conv1"}; }, {"conv1"}},
    {"LayerBitsNumber", [](Recipe& r) { r.layer_bits = {"conv1=99"}; }, {"99"}},
};

INSTANTIATE_TEST_SUITE_P(Values, ImpossibleRecipe, testing::ValuesIn(kImpossible),
                         [](const testing::TestParamInfo<Impossible>& tested) { return tested.param.name; });

TEST(ScheduleOf, EveryCyclicNameIsCompletedByTheRecipe) {
  for (const CyclicSchedule& cyclic : cyclic_schedules()) {
    Recipe recipe = possible();
    recipe.schedule = cyclic.name;
    recipe.bits = "4:7";
    recipe.grad_bits = "6:8";
    recipe.cycles = 6;
    recipe.k = 3;
    recipe.c = 0.25;
    const ScheduleSpec spec = schedule_of(recipe);
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
  recipe.schedule = "static";
  recipe.bits = "3:6";
  EXPECT_EQ(schedule_of(recipe), parse_schedule("static 6 grad=8"));
  recipe.bits = "5";
  recipe.grad_bits = "4";
  EXPECT_EQ(schedule_of(recipe), parse_schedule("static 5 grad=4"));
}

TEST(ScheduleOf, Fp32TakesNothing) {
  Recipe recipe;
  recipe.schedule = "fp32";
  EXPECT_EQ(schedule_of(recipe), parse_schedule("fp32"));
}

TEST(ScheduleOf, AWholeLineSaysAllOfIt) {
  for (const char* line : {"RR 2:5 n=3 grad=6", "deficit 3:8 grad=8 steps=100", "window 3:8 from=10 to=20",
                           "delayed 25% at=fp32 CR 3:8 n=4", "progressive 3,4,8 patience=2", "static 7"}) {
    Recipe recipe;
    recipe.schedule = line;
    EXPECT_EQ(schedule_of(recipe), parse_schedule(line)) << line;
  }
}

TEST(ScheduleOf, TheOthersNeedTheirWholeLine) {
  for (const char* name : {"deficit", "window", "progressive", "delayed"}) {
    Recipe recipe;
    recipe.schedule = name;
    EXPECT_FALSE(user_error([&] { schedule_of(recipe); }).empty()) << name;
  }
}

}  // namespace
}  // namespace lowtide
