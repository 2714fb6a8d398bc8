#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "lowtide/cost/ledger.h"
#include "lowtide/io/file.h"
#include "lowtide/io/jsonl.h"
#include "lowtide/tasks/task.h"
#include "lowtide/train/checkpoint.h"
#include "lowtide/train/trainer.h"
#include "tests/io/scratch.h"
#include "tests/train/closed_loop.h"
#include "tests/train/kept_best.h"
#include "tests/train/resumed.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

// A text that can be learnt: each line counts on from where the last one ended.
void write_text(const fs::path& folder, int lines) {
  std::string text;
  for (int i = 0; i < lines; ++i) {
    for (int word = 0; word < 5; ++word) text += fmt::format("w{} ", (i * 5 + word) % 11);
    text += "\n";
  }
  fs::create_directories(folder);
  for (const char* part : {"train", "valid", "test"}) {
    write_atomically(folder / ("ptb." + std::string(part) + ".txt"), std::string_view(text));
  }
}

class LanguageModels : public testing::Test {
 protected:
  LanguageModels() {
    write_text(folder_ / "data", 60);
    recipe_.data.format = "ptb";
    recipe_.data.dir = (folder_ / "data").string();
    recipe_.model.name = "lstm";
    recipe_.model.hidden = 12;
    recipe_.model.layers = 2;
    recipe_.model.dropout = 0.1;
    recipe_.data.length = 7;
    recipe_.training.batch = 4;
    recipe_.precision.bits = "3:8";
    recipe_.precision.cycles = 2;
    recipe_.training.steps = 20;
    recipe_.training.optimizer = "sgd";
    recipe_.training.lr = 1;
    recipe_.training.momentum = 0;
    recipe_.training.weight_decay = 0;
    recipe_.training.clip = 0.25;
    recipe_.training.lr_schedule = "plateau";
    recipe_.training.lr_gamma = 0.25;
    recipe_.training.plateau_every = 4;
    recipe_.running.log_every = 3;
    recipe_.running.eval_every = 6;
  }

  const ScratchFolder folder_;
  Recipe recipe_;
};

TEST_F(LanguageModels, AClosedLoopProbesThem) {
  expect_loop_trains_as_its_table(recipe_, "price 3:8 every=3 budget=0.63", folder_.path());
}

// Whatever the batch is, and however many columns an evaluation has: a budget counts a probe as the forward pass of a batch.
TEST_F(LanguageModels, AProbeIsTwoForwardPassesOfABatch) {
  recipe_.precision.schedule = "price 3:8 every=3 budget=0.63";
  train(recipe_, folder_ / "run");
  const RunPaths run{folder_ / "run"};
  const Ledger ledger = Ledger::from_state(read_checkpoint_state(run.checkpoint(20)).at("ledger"));
  // Words of 4 columns of 7, as LedgerCountsEveryWord has them.
  const std::int64_t macs = (2 * 4 * 12 * 24 + 12 * 12) * 4 * 7;
  std::int64_t expected = 0;
  for (const Json& line : read_jsonl(run.metrics()).lines) {
    if (line.value("split", "") != "probe") continue;
    const std::int64_t bits = line.at("coarse_bits");
    expected += macs * (bits * bits + (bits + 1) * (bits + 1));
  }
  EXPECT_GT(expected, 0);
  EXPECT_TRUE(ledger.paper_of_probes() == static_cast<Count>(expected));
}

TEST_F(LanguageModels, ResumeExactlyWithWhatIsCarried) {
  // An epoch has 13 windows, the last of them shorter: the middle of a pass, its end, a fall of the rate.
  expect_resumes_exactly(recipe_, folder_.path(), {1, 4, 12, 13, 14, 19, 20});
}

TEST_F(LanguageModels, TheLowestPerplexityIsKept) { expect_keeps_best(recipe_, folder_.path()); }

TEST_F(LanguageModels, ASampleIsTheFirstWindows) {
  const auto task = make_task(recipe_);
  const Evaluation whole = task->evaluate(Split::kTest, {0, 0});
  const Evaluation some = task->evaluate_sample(Split::kTest, {0, 0}, 100);
  EXPECT_EQ(some.items, 140);  // two windows of 7 words in 10 columns
  EXPECT_NE(some.loss, whole.loss);
  EXPECT_EQ(task->evaluate_sample(Split::kTest, {0, 0}, 100).loss, some.loss);
  EXPECT_EQ(task->evaluate_sample(Split::kTest, {0, 0}, whole.items).loss, whole.loss);
}

TEST_F(LanguageModels, DoNotDependOnTheNumberOfThreads) {
  expect_run_independent_of_threads(recipe_, folder_.path());
}

TEST_F(LanguageModels, Learn) {
  recipe_.training.steps = 150;
  recipe_.training.optimizer = "adam";
  recipe_.training.lr = 0.02;
  recipe_.training.lr_schedule = "constant";
  const Json result = train(recipe_, folder_ / "run");
  EXPECT_EQ(result.at("metric"), "perplexity");
  EXPECT_LT(result.at("test").get<double>(), 2.5);  // twelve words by chance
  EXPECT_NEAR(std::log(result.at("test").get<double>()), result.at("test_loss").get<double>(), 1e-12);
}

TEST_F(LanguageModels, LedgerCountsEveryWord) {
  recipe_.precision.schedule = "static";
  recipe_.precision.bits = "4:4";
  const Json result = train(recipe_, folder_ / "run");
  // A word takes 4·12·(12 + 12) MACs in each layer and 12·12 in the decoder. The columns of 360 tokens have 90 rows, 89
  // with a target: windows of 7, the last of 5. Twenty steps are one pass and seven windows.
  const std::int64_t macs = 2 * 4 * 12 * 24 + 12 * 12, words = 4 * (89 + 7 * 7);
  EXPECT_EQ(result.at("bitops").at("paper").get<std::int64_t>(), macs * words * (4 * 4 + 2 * 4 * 8));
}

TEST_F(LanguageModels, WrongInputIsOneLine) {
  recipe_.model.name = "gru";
  EXPECT_TRUE(contains(user_error([&] { make_task(recipe_); }), "model is 'gru'", "lstm"));
  recipe_.model.name = "lstm";
  recipe_.precision.layer_bits = {"lstm7=8"};
  EXPECT_TRUE(contains(user_error([&] { make_task(recipe_); }), "'lstm7' matches no layer"));
  recipe_.precision.layer_bits = {};
  recipe_.data.dir = (folder_ / "elsewhere").string();
  EXPECT_TRUE(contains(user_error([&] { make_task(recipe_); }), "elsewhere"));
}

}  // namespace
}  // namespace lowtide
