#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lowtide/io/file.h"
#include "lowtide/tasks/task.h"
#include "tests/io/scratch.h"
#include "tests/train/resumed.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

// A text in which two words tell the next one: each is the sum of the two before it, of seven.
void write_text(const fs::path& folder) {
  std::string text;
  int before = 1, last = 1;
  for (int i = 0; i < 600; ++i) {
    text += fmt::format("w{}{}", last, i % 10 == 9 ? "\n" : " ");
    last = (before + last) % 7;
    before = (last + 7 - before) % 7;
  }
  fs::create_directories(folder);
  for (const char* part : {"train", "valid", "test"}) {
    write_atomically(folder / ("wiki." + std::string(part) + ".tokens"), std::string_view(text));
  }
}

class TransformerTask : public testing::Test {
 protected:
  TransformerTask() {
    write_text(folder_ / "data");
    recipe_.data.format = "wikitext";
    recipe_.data.dir = (folder_ / "data").string();
    recipe_.model.name = "transformer";
    recipe_.model.hidden = 16;
    recipe_.model.heads = 2;
    recipe_.model.layers = 2;
    recipe_.model.dropout = 0.1;
    recipe_.data.length = 9;
    recipe_.training.batch = 4;
    recipe_.precision.bits = "4:8";
    recipe_.precision.cycles = 2;
    recipe_.training.steps = 16;
    recipe_.training.optimizer = "adam";
    recipe_.training.lr = 0.003;
    recipe_.training.weight_decay = 0;
    recipe_.training.lr_schedule = "inverse-sqrt";
    recipe_.training.warmup = 4;
    recipe_.running.log_every = 3;
    recipe_.running.eval_every = 5;
  }

  const ScratchFolder folder_;
  Recipe recipe_;
};

TEST_F(TransformerTask, ResumesExactly) {
  expect_resumes_exactly(recipe_, folder_.path(), {1, 4, 9, 15, 16});
}

TEST_F(TransformerTask, DoesNotDependOnTheNumberOfThreads) {
  expect_run_independent_of_threads(recipe_, folder_.path());
}

TEST_F(TransformerTask, Learns) {
  recipe_.training.steps = 200;
  recipe_.model.dropout = 0;
  recipe_.training.lr = 0.01;
  recipe_.training.warmup = 20;
  const Json result = train(recipe_, folder_ / "run");
  EXPECT_LT(result.at("test").get<double>(), 4);  // eight words by chance
}

TEST_F(TransformerTask, WrongInputIsOneLine) {
  recipe_.model.heads = 3;
  EXPECT_TRUE(contains(user_error([&] { make_task(recipe_); }), "heads is 3", "16"));
}

}  // namespace
}  // namespace lowtide
