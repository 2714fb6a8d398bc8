#include "lowtide/study/range_test.h"

#include <gtest/gtest.h>

#include "lowtide/study/folder.h"
#include "tests/io/scratch.h"
#include "tests/study/fake_runs.h"
#include "tests/study/fake_trainer.h"

namespace lowtide {
namespace {

Recipe recipe() {
  Recipe result;
  result.data.dir = "data";
  result.training.steps = 64000;
  result.training.lr_schedule = "cosine";
  result.precision.grad_bits = "6:8";
  result.training.warmup = 50;
  result.precision.bits = "3:5";
  return result;
}

constexpr RangeTestOptions kOptions{.steps = 110, .window = 25, .threshold = 0.02};

class RangeTests : public testing::Test {
 protected:
  // A finished run at these bits whose training metric goes from `first` to `last`.
  void write(int bits, double first, double last, const std::string& metric = "accuracy",
             const std::string& key = "accuracy") {
    const auto folder = folder_ / ("bits-" + std::to_string(bits));
    write_finished(folder, {.metric = metric});
    std::ofstream(folder / "metrics.jsonl") << Json{{"step", 25}, {key, first}, {"seconds", 1}} << "\n"
                                            << Json{{"step", 50}, {"split", "valid"}, {key, 0.99}} << "\n"
                                            << Json{{"step", 100}, {key, last}, {"seconds", 2}} << "\n";
  }

  RangeTest read(const std::vector<FailedMember>& failed = {}) const {
    return read_range_test(range_members(recipe(), kOptions), folder_.path(), kOptions, failed);
  }

  const ScratchFolder folder_;
};

TEST_F(RangeTests, RunsAreTheFirstStepsOfTheTrainingAtEachNumberOfBits) {
  const std::vector<Member> members = range_members(recipe(), kOptions);
  ASSERT_EQ(members.size(), 4u);  // 2, 3, 4, 5
  EXPECT_EQ(members[0].name, "bits-2");
  EXPECT_EQ(to_string(schedule_of(members[1].recipe.precision)), "static 3 grad=8");
  EXPECT_EQ(members[0].recipe.training.steps, 100);  // whole windows
  EXPECT_EQ(members[0].recipe.running.log_every, 25);
  EXPECT_EQ(members[0].recipe.training.lr_schedule, "constant");  // the decay is far away
  EXPECT_EQ(members[0].recipe.training.warmup, 50);
}

// Short runs are not evaluated on the way, so nothing is chosen among their evaluations.
TEST_F(RangeTests, ARecipeThatKeepsItsBestRunsToo) {
  Recipe choosing = recipe();
  choosing.training.keep_best = true;
  choosing.training.patience = 5;
  for (const Member& member : range_members(choosing, kOptions)) {
    EXPECT_FALSE(member.recipe.training.keep_best);
    EXPECT_EQ(member.recipe.training.patience, 0);
  }
}

TEST_F(RangeTests, TheFirstBitsThatMoveAreChosen) {
  write(2, 0.10, 0.11);
  write(3, 0.10, 0.15);
  write(4, 0.10, 0.30);
  write(5, 0.10, 0.31);
  const RangeTest test = read();
  EXPECT_EQ(test.lowest, 3);
  EXPECT_EQ(test.metric, "accuracy");
  EXPECT_NEAR(test.steps[2].gain, 0.2, 1e-12);
  const std::string text = to_text(test, Charset::kAscii);
  EXPECT_TRUE(contains(text, "2 bits |", "+1.00 points  (10.00 % to 11.00 %)", "q_min = 3",
                       "with 2 or fewer it stays below"));
  // 40 characters are 0.21: 0.2 is 38, of which the mark of the threshold, the fifth, takes one.
  EXPECT_TRUE(contains(text, "4 bits |####:#################################   +20.00 points"));
  EXPECT_EQ(to_json(test).at("q_min"), 3);
}

TEST_F(RangeTests, NothingMovesIsAnAnswerToo) {
  for (const int bits : {2, 3, 4, 5}) write(bits, 0.10, 0.09);
  const RangeTest test = read();
  EXPECT_FALSE(test.lowest);
  EXPECT_TRUE(contains(to_text(test, Charset::kUtf8), "At no number of bits"));
  EXPECT_TRUE(to_json(test).at("q_min").is_null());
}

TEST_F(RangeTests, APerplexityMovesByFalling) {
  write(2, 1000, 1100, "perplexity", "perplexity");
  write(3, 1000, 990, "perplexity", "perplexity");
  write(4, 1000, 900, "perplexity", "perplexity");
  write(5, 1000, 500, "perplexity", "perplexity");
  const RangeTest test = read();
  EXPECT_EQ(test.lowest, 4);
  EXPECT_NEAR(test.steps[0].gain, -0.1, 1e-12);
  EXPECT_NEAR(test.steps[3].gain, 0.5, 1e-12);
}

TEST_F(RangeTests, TheLossIsFollowedWhereTheMetricIsNotLogged) {
  for (const int bits : {2, 3, 4, 5}) write(bits, 2.0, bits == 5 ? 1.5 : 2.0, "mAP", "loss");
  const RangeTest test = read();
  EXPECT_EQ(test.metric, "loss");
  EXPECT_EQ(test.lowest, 5);
}

TEST_F(RangeTests, ARunThatFailedIsShownWithItsReason) {
  write(3, 0.10, 0.30);
  write(4, 0.10, 0.30);
  write(5, 0.10, 0.30);
  const RangeTest test = read({{"bits-2", "training stopped near step 3"}});
  EXPECT_EQ(test.lowest, 3);
  EXPECT_TRUE(contains(to_text(test, Charset::kAscii), "failed: training stopped near step 3"));
}

TEST_F(RangeTests, MistakesAreNamed) {
  EXPECT_TRUE(
      contains(user_error([] { range_members(recipe(), {.steps = 40, .window = 25}); }), "two windows"));
  EXPECT_TRUE(contains(user_error([] { range_members(recipe(), {.window = 0}); }), "two windows"));
  EXPECT_TRUE(contains(user_error([] { range_members(recipe(), {.threshold = 0}); }), "threshold is 0"));
  std::vector<FailedMember> all;
  for (const int bits : {2, 3, 4, 5}) all.push_back({"bits-" + std::to_string(bits), "no such data"});
  EXPECT_TRUE(contains(user_error([&] { read(all); }), "no run of the range test trained: no such data"));
}

TEST_F(RangeTests, RunsByTheRunner) {
  const auto members = range_members(recipe(), kOptions);
  const ScratchFolder elsewhere;
  const RunnerEnd end =
      run_members(members, folder_.path(), {.program = write_fake_trainer(elsewhere / "trainer")});
  const RangeTest test = read_range_test(members, folder_.path(), kOptions, end.failed);
  EXPECT_EQ(test.lowest, 2);  // the stand-in goes from 0.1 to 0.3
}

}  // namespace
}  // namespace lowtide
