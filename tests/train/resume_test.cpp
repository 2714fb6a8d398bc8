// What a resumed run must be: byte for byte the run that was never interrupted.
#include <gtest/gtest.h>

#include "lowtide/base/error.h"
#include "lowtide/io/jsonl.h"
#include "lowtide/train/checkpoint.h"
#include "lowtide/train/run_folder.h"
#include "lowtide/train/trainer.h"
#include "tests/io/scratch.h"
#include "tests/train/resumed.h"
#include "tests/train/small_run.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

struct Variant {
  std::string name;
  void (*change)(Recipe&);
};

class Resume : public testing::TestWithParam<Variant> {
 protected:
  Resume() {
    write_small_dataset(folder_ / "data");
    recipe_ = small_recipe(folder_ / "data");
    recipe_.running.checkpoint_every = 1;
    recipe_.running.keep_checkpoints = 1000;
    GetParam().change(recipe_);
  }

  const ScratchFolder folder_;
  Recipe recipe_;
};

TEST_P(Resume, AfterAnyStepEqualsTheUninterruptedRun) {
  // The first step, the middle of a cycle of 10 steps, just before and after a change of bits, the last step.
  const std::vector<std::int64_t> steps{1, 5, 11, 23, 24, 25, 39, 40};
  expect_resumes_exactly(recipe_, folder_.path(), steps);
  const auto schedule = make_schedule(schedule_of(recipe_.precision), recipe_.training.steps);
  int changes = 0;
  for (const std::int64_t step : steps) changes += schedule->at(step) != schedule->at(step - 1) ? 1 : 0;
  if (GetParam().name == "sgd") {
    EXPECT_GT(changes, 1);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Variants, Resume,
    testing::Values(
        Variant{"sgd", [](Recipe&) {}},
        Variant{"adam_averaging_clipping",
                [](Recipe& r) {
                  r.training.optimizer = "adam";
                  r.training.lr = 0.002;
                  r.training.clip = 1;
                  r.training.swa_start = 0.5;
                  r.training.swa_every = 3;
                }},
        Variant{"progressive",
                [](Recipe& r) {
                  r.precision.schedule = "progressive 3,4,6,8 grad=8 window=4 threshold=0.2 patience=1";
                }},
        Variant{"price",
                [](Recipe& r) {
                  r.precision.schedule = "price 3:8 grad=8 every=4 budget=0.63";
                  r.training.lr_schedule = "cosine";
                }},
        // Looks after steps 4 to 32; the last interval, from 32 to the tail at 38, has bits of its own in every step.
        Variant{"waterfill",
                [](Recipe& r) {
                  r.precision.schedule = "waterfill 3:8 grad=8 every=4 budget=1.4 then fp32 last=5%";
                  r.precision.layer_bits = {"group2.*=8"};
                  r.precision.recompute = true;
                  r.training.lr_schedule = "cosine";
                }},
        Variant{"waterfill_in_shards",
                [](Recipe& r) {
                  r.precision.schedule = "waterfill 3:8 grad=8 every=4 budget=0.63";
                  r.training.shards = 2;
                  r.training.clip = 1;
                }},
        Variant{"fp32", [](Recipe& r) { r.precision.schedule = "fp32"; }}),
    [](const auto& instance) { return instance.param.name; });

class SmallRun : public testing::Test {
 protected:
  SmallRun() {
    write_small_dataset(folder_ / "data");
    recipe_ = small_recipe(folder_ / "data");
  }

  const ScratchFolder folder_;
  Recipe recipe_;
};

TEST_F(SmallRun, DoesNotDependOnTheNumberOfThreads) {
  expect_run_independent_of_threads(recipe_, folder_.path());
}

TEST_F(SmallRun, Learns) {
  recipe_.training.steps = 200;
  recipe_.data.flip = false;  // it would make some of the made-up classes alike
  const Json result = train(recipe_, folder_ / "run");
  EXPECT_GT(result.at("test").get<double>(), 0.9);  // a tenth by chance
}

// What a closed loop did is drawn from its lines, however seldom they are logged.
TEST_F(SmallRun, LinesOfAClosedLoopEndWhereItsBitsChange) {
  recipe_.precision.schedule = "progressive 3,4,6,8 grad=8 window=4 threshold=0.2 patience=1";
  recipe_.running.log_every = 1000;
  train(recipe_, folder_ / "run");
  const RunPaths paths{folder_ / "run"};
  const Json climbs =
      read_checkpoint_state(paths.checkpoint(recipe_.training.steps)).at("schedule").at("climbs");
  ASSERT_GE(climbs.size(), 2u);
  std::vector<std::pair<std::int64_t, int>> expected, logged;
  const std::vector<int> levels{3, 4, 6, 8};
  for (std::size_t i = 0; i < climbs.size(); ++i) expected.emplace_back(climbs[i], levels[i]);
  if (climbs.back() != recipe_.training.steps)
    expected.emplace_back(recipe_.training.steps, levels[climbs.size()]);
  for (const Json& line : read_jsonl(paths.metrics()).lines) {
    if (!line.contains("split")) logged.emplace_back(line.at("step"), line.at("bits"));
  }
  EXPECT_EQ(logged, expected);
}

TEST_F(SmallRun, SeedsDiffer) {
  train(recipe_, folder_ / "1");
  recipe_.training.seed = 2;
  train(recipe_, folder_ / "2");
  EXPECT_NE(last_checkpoint(recipe_, folder_ / "1"), last_checkpoint(recipe_, folder_ / "2"));
}

TEST_F(SmallRun, KeepsTheLastCheckpointsOnly) {
  recipe_.running.keep_checkpoints = 2;
  train(recipe_, folder_ / "run");
  EXPECT_EQ(checkpoint_steps(RunPaths{folder_ / "run"}), (std::vector<std::int64_t>{36, 40}));
}

TEST_F(SmallRun, DivergenceStopsBeforeTheUpdateAndNamesTheLayer) {
  recipe_.training.lr = 1e30;
  recipe_.running.checkpoint_every = 1;
  const fs::path run = folder_ / "run";
  const std::string message = user_error([&] { train(recipe_, run); });
  EXPECT_TRUE(contains(message, "is not finite", "layer ", "is the last good one"));
  EXPECT_FALSE(fs::exists(RunPaths{run}.result()));
  const std::vector<std::int64_t> steps = checkpoint_steps(RunPaths{run});
  ASSERT_FALSE(steps.empty());
  const auto task = make_task(recipe_);
  read_checkpoint_tensors(RunPaths{run}.checkpoint(steps.back()), model_tensors(task->model()));
  for (const auto& parameter : task->model().parameters()) {
    EXPECT_TRUE(torch::isfinite(parameter).all().item<bool>());
  }
}

TEST_F(SmallRun, AveragedWeightsAreEvaluatedWithStatisticsOfTheirOwn) {
  recipe_.training.steps = 120;
  recipe_.data.flip = false;
  recipe_.training.swa_start = 0.5;
  recipe_.training.swa_every = 10;
  const Json result = train(recipe_, folder_ / "run");
  EXPECT_EQ(result.at("averaged").get<int>(), 6);
  EXPECT_GT(result.at("test").get<double>(), 0.8);
  EXPECT_TRUE(fs::exists(RunPaths{folder_ / "run"}.averaged()));
}

TEST_F(SmallRun, LedgerCountsEveryStepExactly) {
  recipe_.precision.schedule = "static";
  recipe_.precision.bits = "4:4";
  const Json result = train(recipe_, folder_ / "run");
  const auto task = make_task(recipe_);
  std::int64_t macs = 0, float_macs = 0;
  for (const Ledger::Layer& layer : task->layers()) {
    macs += layer.macs;
    if (layer.name == "fc") float_macs += layer.macs;
  }
  const std::int64_t items = recipe_.training.steps * recipe_.training.batch;
  const std::int64_t quantised = 4 * 4 + 2 * 4 * 8, full = 3 * 32 * 32;
  EXPECT_EQ(result.at("bitops").at("paper").get<std::int64_t>(), macs * items * quantised);
  EXPECT_EQ(result.at("bitops").at("actual").get<std::int64_t>(),
            ((macs - float_macs) * quantised + float_macs * full) * items);
  EXPECT_DOUBLE_EQ(result.at("relative_cost").get<double>(), static_cast<double>(quantised) / full);
}

}  // namespace
}  // namespace lowtide
