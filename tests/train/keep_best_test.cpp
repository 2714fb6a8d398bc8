// The best evaluation of a run: its weights are kept, a run without a better one for long ends early, and both come out the
// same of a run that was killed.
#include <gtest/gtest.h>

#include "lowtide/base/error.h"
#include "lowtide/io/jsonl.h"
#include "lowtide/train/run_folder.h"
#include "lowtide/train/trainer.h"
#include "tests/io/scratch.h"
#include "tests/tasks/small_papers.h"
#include "tests/train/kept_best.h"
#include "tests/train/resumed.h"
#include "tests/train/small_run.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

class KeepBest : public testing::Test {
 protected:
  KeepBest() {
    write_papers(folder_ / "data");
    recipe_ = node_recipe(folder_ / "data");
    recipe_.training.keep_best = true;
    recipe_.running.eval_every = 3;
  }

  // Weights that do not change: no evaluation is better than the first.
  void stand_still() { recipe_.training.lr = 1e-30; }

  const ScratchFolder folder_;
  Recipe recipe_;
};

TEST_F(KeepBest, OfImages) {
  write_small_dataset(folder_ / "images");
  Recipe recipe = small_recipe(folder_ / "images");
  recipe.running.eval_every = 7;
  expect_keeps_best(recipe, folder_.path());
}

TEST_F(KeepBest, OfNodes) { expect_keeps_best(recipe_, folder_.path()); }

TEST_F(KeepBest, BesideAveragedWeights) {
  recipe_.training.swa_start = 0.5;
  recipe_.training.swa_every = 2;
  const Json result = train(recipe_, folder_ / "run");
  EXPECT_EQ(result.at("averaged"), 10);
  EXPECT_TRUE(fs::exists(RunPaths{folder_ / "run"}.averaged()));
  recipe_.training.swa_start = 1;
  EXPECT_EQ(train(recipe_, folder_ / "plain").at("best"), result.at("best"))
      << "averages are not among the best";
}

TEST_F(KeepBest, TheLastStepIsAmongThem) {
  recipe_.running.eval_every = 1000;
  const Json result = train(recipe_, folder_ / "run");
  EXPECT_EQ(result.at("best").at("step"), 40);
  EXPECT_EQ(result.at("best").at("test"), result.at("test"));
}

TEST_F(KeepBest, ResumesExactly) { expect_resumes_exactly(recipe_, folder_.path(), {1, 3, 17, 39, 40}); }

TEST_F(KeepBest, AKillBeforeTheBestWasWrittenIsMended) {
  train(recipe_, folder_ / "run");
  const RunPaths run{folder_ / "run"};
  const std::int64_t best = read_run_file(run.result()).at("best").at("step");
  const std::string expected = file_bytes(run.best());
  cut_after(run.folder, folder_ / "killed", best);
  const RunPaths killed{folder_ / "killed"};
  fs::remove(killed.best());
  train(recipe_, killed.folder, /*resume=*/true);
  EXPECT_EQ(file_bytes(killed.best()), expected);
}

TEST_F(KeepBest, AFileThatWasRemovedIsNotTested) {
  stand_still();
  train(recipe_, folder_ / "run");
  cut_after(folder_ / "run", folder_ / "removed", 10);
  fs::remove(RunPaths{folder_ / "removed"}.best());
  const Json best = train(recipe_, folder_ / "removed", /*resume=*/true).at("best");
  EXPECT_EQ(best.at("step"), 3);
  EXPECT_TRUE(best.at("test").is_null());
}

TEST_F(KeepBest, PatienceEndsARunEarly) {
  stand_still();
  recipe_.precision.schedule = "static";
  recipe_.training.patience = 4;
  const Json result = train(recipe_, folder_ / "run");
  EXPECT_EQ(result.at("steps"), 3 + 4 * 3);
  EXPECT_EQ(result.at("planned_steps"), 40);
  EXPECT_TRUE(result.at("stopped_early").get<bool>());
  EXPECT_EQ(result.at("best").at("step"), 3);
  EXPECT_EQ(checkpoint_steps(RunPaths{folder_ / "run"}).back(), 15);
  const auto lines = read_jsonl(RunPaths{folder_ / "run"}.metrics()).lines;
  EXPECT_EQ(lines[lines.size() - 1].at("step"), 15);

  recipe_.training.patience = 0;
  recipe_.training.steps = 15;
  EXPECT_EQ(train(recipe_, folder_ / "short").at("bitops"), result.at("bitops"))
      << "the steps that ran are counted";
}

TEST_F(KeepBest, ARunThatGetsBetterInTimeGoesOn) {
  recipe_.training.patience = 14;  // more evaluations than there are
  const Json result = train(recipe_, folder_ / "run");
  EXPECT_EQ(result.at("steps"), 40);
  EXPECT_FALSE(result.at("stopped_early").get<bool>());
}

TEST_F(KeepBest, EarlyEndsResumeExactly) {
  stand_still();
  recipe_.training.patience = 4;
  expect_resumes_exactly(recipe_, folder_.path(), {2, 3, 14, 15});
}

TEST_F(KeepBest, NeedsItemsThatAreHeldOut) {
  write_small_dataset(folder_ / "images");
  Recipe recipe = small_recipe(folder_ / "images");
  recipe.data.validation = 0;
  recipe.training.patience = 3;
  EXPECT_TRUE(contains(user_error([&] { Trainer(recipe, "test"); }), "patience", "held out", "--validation"));
}

class LongerRun : public KeepBest {
 protected:
  LongerRun() {
    recipe_.precision.schedule = "static";
    recipe_.running.log_every = 5;
    recipe_.running.eval_every = 4;
    recipe_.training.steps = 20;
  }
};

TEST_F(LongerRun, IsTheOneThatWasLongFromItsFirstStep) {
  for_each_engine(recipe_, folder_.path(), [](Recipe recipe, const fs::path& folder) {
    const RunPaths run{folder / "run"}, reference{folder / "whole"};
    train(recipe, run.folder);
    recipe.training.steps = 40;
    const Json longer = train(recipe, run.folder, /*resume=*/true), whole = train(recipe, reference.folder);
    for (const std::int64_t step : {20, 21, 40})
      EXPECT_EQ(file_bytes(run.checkpoint(step)), file_bytes(reference.checkpoint(step))) << step;
    EXPECT_EQ(longer.at("best"), whole.at("best"));
    EXPECT_EQ(longer.at("test"), whole.at("test"));
    EXPECT_EQ(longer.at("bitops"), whole.at("bitops"));
    EXPECT_EQ(timeless_metrics(run.folder), timeless_metrics(reference.folder));
    EXPECT_EQ(read_run_recipe(run).training.steps, 40);
  });
}

TEST_F(LongerRun, WithAPlateauThatItsLastStepWouldHaveHeard) {
  recipe_.training.keep_best = false;
  recipe_.training.lr_schedule = "plateau";
  recipe_.training.plateau_every = 5;
  recipe_.training.lr_gamma = 0.5;
  train(recipe_, folder_ / "run");
  recipe_.training.steps = 30;
  train(recipe_, folder_ / "run", /*resume=*/true);
  train(recipe_, folder_ / "whole");
  EXPECT_EQ(last_checkpoint(recipe_, folder_ / "run"), last_checkpoint(recipe_, folder_ / "whole"));
}

TEST_F(LongerRun, OneThatIsNotFinishedGetsLongerToo) {
  train(recipe_, folder_ / "run");
  cut_after(folder_ / "run", folder_ / "killed", 12);
  recipe_.training.steps = 40;
  train(recipe_, folder_ / "killed", /*resume=*/true);
  train(recipe_, folder_ / "whole");
  EXPECT_EQ(last_checkpoint(recipe_, folder_ / "killed"), last_checkpoint(recipe_, folder_ / "whole"));
}

TEST_F(LongerRun, ARefusalLeavesTheRunAsItWas) {
  recipe_.precision.schedule = "CR";
  train(recipe_, folder_ / "run");
  const RunPaths run{folder_ / "run"};
  const std::string result = file_bytes(run.result()), json = file_bytes(run.run()),
                    metrics = file_bytes(run.metrics());
  recipe_.training.steps = 40;
  EXPECT_TRUE(contains(user_error([&] { train(recipe_, run.folder, /*resume=*/true); }), "cannot go on",
                       "CR 3:8 n=4"));
  EXPECT_EQ(file_bytes(run.result()), result);
  EXPECT_EQ(file_bytes(run.run()), json);
  EXPECT_EQ(file_bytes(run.metrics()), metrics);
}

TEST_F(LongerRun, OneThatStoppedEarlyWouldStopThereAgain) {
  stand_still();
  recipe_.training.patience = 2;
  EXPECT_EQ(train(recipe_, folder_ / "run").at("steps"), 12);
  recipe_.training.steps = 40;
  EXPECT_TRUE(contains(user_error([&] { train(recipe_, folder_ / "run", /*resume=*/true); }),
                       "stopped early, at step 12 of 20"));
}

TEST_F(LongerRun, WithoutACheckpointThereIsNothingToGoOnFrom) {
  train(recipe_, folder_ / "run");
  fs::remove_all(RunPaths{folder_ / "run"}.checkpoints());
  recipe_.training.steps = 40;
  EXPECT_TRUE(
      contains(user_error([&] { train(recipe_, folder_ / "run", /*resume=*/true); }), "no checkpoint left"));
}

// As a program wrote it that knew none of these.
TEST_F(KeepBest, RunsFromBeforeItGoOn) {
  recipe_.training.keep_best = false;
  train(recipe_, folder_ / "run");
  cut_after(folder_ / "run", folder_ / "old", 17);
  const RunPaths old{folder_ / "old"};
  Json run = read_run_file(old.run());
  for (const char* key : {"norm", "input-dropout", "decay-layers", "keep-best", "patience"})
    EXPECT_EQ(run.at("recipe").erase(key), 1u) << key;
  write_atomically(old.run(), std::string_view(run.dump()));
  train(read_run_recipe(old), old.folder, /*resume=*/true);
  EXPECT_EQ(last_checkpoint(recipe_, old.folder), last_checkpoint(recipe_, folder_ / "run"));
}

}  // namespace
}  // namespace lowtide
