// Runs whose bits are decided while they train.
#include "tests/train/closed_loop.h"

#include <gtest/gtest.h>

#include "lowtide/base/error.h"
#include "lowtide/cost/ledger.h"
#include "lowtide/io/jsonl.h"
#include "lowtide/train/checkpoint.h"
#include "lowtide/train/run_folder.h"
#include "tests/io/scratch.h"
#include "tests/train/resumed.h"
#include "tests/train/small_run.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

class ClosedLoop : public testing::Test {
 protected:
  ClosedLoop() {
    write_small_dataset(folder_ / "data");
    recipe_ = small_recipe(folder_ / "data");
    recipe_.precision.schedule = "price 3:8 grad=8 every=4 budget=0.63";
    recipe_.running.log_every = 1000;  // the loop's lines come by themselves
  }

  static Json state_of(const fs::path& run, std::int64_t step) {
    return read_checkpoint_state(RunPaths{run}.checkpoint(step));
  }

  const ScratchFolder folder_;
  Recipe recipe_;
};

TEST_F(ClosedLoop, DoesNotDependOnTheNumberOfThreads) {
  expect_run_independent_of_threads(recipe_, folder_.path());
}

// 40 steps of 192 bit operations a MAC and item, of which 0.63.
TEST_F(ClosedLoop, SpendsItsBudgetInTheLedgerProbesIncluded) {
  train(recipe_, folder_ / "run");
  const Json state = state_of(folder_ / "run", 40);
  const Ledger ledger = Ledger::from_state(state.at("ledger"));
  EXPECT_EQ(state.at("schedule").at("heard").size(), 8u);
  const Count macs_per_step = ledger.macs() / 40;
  EXPECT_TRUE(ledger.macs() == 40 * macs_per_step);
  const Count spent = ledger.paper().total() / macs_per_step;
  EXPECT_TRUE(ledger.paper().total() == spent * macs_per_step) << "a probe is the forward pass of a batch";
  const auto left = static_cast<std::int64_t>(0.63 * 40 * 192) - static_cast<std::int64_t>(spent);
  EXPECT_TRUE(left >= 0 && left < 31) << left;  // 31: between 7 and 8 bits
  EXPECT_TRUE(ledger.paper_of_probes() > 0u);
}

TEST_F(ClosedLoop, ProbesChangeNothingElse) {
  expect_loop_trains_as_its_table(recipe_, recipe_.precision.schedule, folder_.path());
}

TEST_F(ClosedLoop, LogsEveryProbe) {
  train(recipe_, folder_ / "run");
  const Json heard = state_of(folder_ / "run", 40).at("schedule").at("heard");
  std::vector<Json> probes;
  for (const Json& line : read_jsonl(RunPaths{folder_ / "run"}.metrics()).lines) {
    if (line.value("split", "") == "probe") probes.push_back(line);
  }
  ASSERT_EQ(probes.size(), heard.size());
  for (std::size_t i = 0; i < probes.size(); ++i) {
    EXPECT_EQ(probes[i].at("step"), 4 * (i + 1));
    EXPECT_EQ(probes[i].at("coarse_loss"), heard[i][0]);
    EXPECT_EQ(probes[i].at("fine_loss"), heard[i][1]);
    EXPECT_GT(probes[i].at("took"), 0);
  }
}

TEST_F(ClosedLoop, SaysWhatItCannotDo) {
  recipe_.precision.schedule = "price 3:8 grad=8 every=4 budget=0.1";
  EXPECT_TRUE(contains(user_error([&] { train(recipe_, folder_ / "run"); }), "possible is 0."));
  recipe_.precision.schedule = "price 3:8 grad=8 every=11 budget=0.63";
  EXPECT_TRUE(contains(user_error([&] { train(recipe_, folder_ / "run"); }), "expected at most 10"));
}

}  // namespace
}  // namespace lowtide
