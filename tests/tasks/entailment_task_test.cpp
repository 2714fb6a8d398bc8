#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>

#include "lowtide/io/file.h"
#include "lowtide/tasks/task.h"
#include "tests/io/scratch.h"
#include "tests/train/closed_loop.h"
#include "tests/train/kept_best.h"
#include "tests/train/resumed.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kVocabulary =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\nw0\nw1\nw2\nw3\nw4\nw5\nw6\nw7\nyes\nno\nperhaps\n";

// Pairs of various lengths whose last word tells the label.
std::string pairs(int count, int first, bool labels) {
  const std::array<std::string, 3> words{"yes", "perhaps", "no"},
      names{"entailment", "neutral", "contradiction"};
  std::string text = labels ? "sentence1\tsentence2\tlabel\n" : "sentence1\tsentence2\n";
  for (int i = first; i < first + count; ++i) {
    const auto label = static_cast<std::size_t>(i * 7 % 5 % 3);
    for (int word = 0; word <= i % 4; ++word) text += fmt::format("w{} ", (i * 3 + word) % 8);
    text += fmt::format("\tw{} {}", i % 8, words[label]);
    text += labels ? fmt::format("\t{}\n", names[label]) : "\n";
  }
  return text;
}

class EntailmentTask : public testing::Test {
 protected:
  EntailmentTask() {
    write("vocab.txt", std::string(kVocabulary));
    write("SICK_train.txt", pairs(100, 0, true));
    write("SICK_trial.txt", pairs(20, 100, true));
    write("SICK_test_annotated.txt", pairs(30, 200, true));
    recipe_.data.format = "sick";
    recipe_.data.dir = folder_.path().string();
    recipe_.data.vocabulary = (folder_ / "vocab.txt").string();
    recipe_.data.lower_case = true;
    recipe_.model.name = "bert";
    recipe_.model.hidden = 12;
    recipe_.model.heads = 3;
    recipe_.model.layers = 2;
    recipe_.model.feed_forward = 16;
    recipe_.model.dropout = 0.1;
    recipe_.data.length = 12;
    recipe_.training.batch = 16;
    recipe_.precision.bits = "5:8";
    recipe_.precision.cycles = 2;
    recipe_.training.steps = 14;
    recipe_.training.optimizer = "adamw";
    recipe_.training.lr = 0.003;
    recipe_.training.lr_schedule = "linear";
    recipe_.running.log_every = 3;
    recipe_.running.eval_every = 5;
  }

  void write(const std::string& name, const std::string& text) {
    write_atomically(folder_ / name, std::string_view(text));
  }
  std::string task_error() {
    return user_error([&] { make_task(recipe_); });
  }

  const ScratchFolder folder_;
  Recipe recipe_;
};

TEST_F(EntailmentTask, AClosedLoopProbesASampleOfIt) {
  const auto task = make_task(recipe_);
  const Evaluation some = task->evaluate_sample(Split::kTrain, {8, 8}, 16);
  EXPECT_EQ(some.items, 16);
  EXPECT_EQ(task->evaluate_sample(Split::kTrain, {8, 8}, 16).loss, some.loss);
  EXPECT_EQ(task->evaluate_sample(Split::kTrain, {8, 8}, 1000).loss,
            task->evaluate(Split::kTrain, {8, 8}).loss);
  expect_loop_trains_as_its_table(recipe_, "price 4:8 every=3 budget=0.7", folder_.path());
}

TEST_F(EntailmentTask, ResumesExactly) {
  // An epoch has seven batches, the last of them smaller.
  expect_resumes_exactly(recipe_, folder_.path(), {1, 6, 7, 8, 13, 14});
}

TEST_F(EntailmentTask, TheBestIsKept) { expect_keeps_best(recipe_, folder_.path()); }

TEST_F(EntailmentTask, DoesNotDependOnTheNumberOfThreads) {
  expect_run_independent_of_threads(recipe_, folder_.path());
}

TEST_F(EntailmentTask, Learns) {
  recipe_.training.steps = 150;
  recipe_.model.dropout = 0;
  recipe_.training.lr = 0.01;
  const Json result = train(recipe_, folder_ / "run");
  EXPECT_EQ(result.at("metric"), "accuracy");
  EXPECT_GT(result.at("test").get<double>(), 0.9);  // four tenths by chance
  EXPECT_GT(result.at("valid").get<double>(), 0.9);
}

TEST_F(EntailmentTask, WithoutTestLabelsTheDevelopmentSetIsTested) {
  recipe_.data.format = "rte";
  write("train.tsv", pairs(40, 0, true));
  write("dev.tsv", pairs(20, 40, true));
  write("test.tsv", pairs(20, 60, false));
  auto task = make_task(recipe_);
  EXPECT_FALSE(task->has(Split::kValid));
  EXPECT_EQ(task->evaluate(Split::kTest, {}).items, 20);
  EXPECT_TRUE(contains(task->describe(), "no labels to test by", "dev.tsv is the test set", "--validation"));
  recipe_.data.validation = 10;
  task = make_task(recipe_);
  EXPECT_EQ(task->evaluate(Split::kValid, {}).items, 10);
  EXPECT_EQ(task->steps_per_epoch(), 2);  // 30 pairs by 16
}

TEST_F(EntailmentTask, PairsThatAreTooLongAreCutAndCounted) {
  recipe_.data.length = 7;
  EXPECT_TRUE(contains(make_task(recipe_)->describe(), "pairs cut to 7 pieces"));
  recipe_.data.length = 4;
  EXPECT_TRUE(contains(task_error(), "at most 4 pieces", "5 or more"));
}

TEST_F(EntailmentTask, WrongInputIsOneLine) {
  recipe_.model.name = "lstm";
  EXPECT_TRUE(contains(task_error(), "model is 'lstm'", "bert"));
  recipe_.model.name = "bert";
  recipe_.model.heads = 5;
  EXPECT_TRUE(contains(task_error(), "5 heads do not divide 12"));
  recipe_.model.heads = 3;
  recipe_.data.vocabulary = "";
  EXPECT_TRUE(contains(task_error(), "vocabulary is empty", "--vocabulary"));
  recipe_.data.vocabulary = (folder_ / "no.txt").string();
  EXPECT_TRUE(contains(task_error(), "no.txt"));
  write("bad.txt", "a\nb\n");
  recipe_.data.vocabulary = (folder_ / "bad.txt").string();
  EXPECT_TRUE(contains(task_error(), "bad.txt", "[PAD]"));
  recipe_.data.vocabulary = (folder_ / "vocab.txt").string();
  recipe_.model.weights = (folder_ / "no.safetensors").string();
  EXPECT_TRUE(contains(task_error(), "no.safetensors"));
  recipe_.model.weights = "";
  write("SICK_trial.txt", pairs(20, 0, false));
  EXPECT_TRUE(contains(task_error(), "SICK_trial.txt", "no labels"));
}

TEST_F(EntailmentTask, AFolderOfWeightsSaysWhatItsNetworkIs) {
  fs::create_directories(folder_ / "bert");
  recipe_.model.weights = (folder_ / "bert").string();
  EXPECT_TRUE(contains(task_error(), "config.json"));
  const auto configure = [&](const std::string& words, const std::string& positions) {
    write("bert/config.json", R"({"vocab_size": )" + words + R"(, "hidden_size": 8, "num_hidden_layers": 1,
      "num_attention_heads": 2, "intermediate_size": 9, "max_position_embeddings": )" +
                                  positions + "}");
  };
  configure("10", "16");
  EXPECT_TRUE(contains(task_error(), "15 pieces", "10 words"));
  configure("15", "8");
  EXPECT_TRUE(contains(task_error(), "length is 12", "8 positions"));
  configure("15", "16");
  EXPECT_TRUE(contains(task_error(), "model.safetensors"));
}

}  // namespace
}  // namespace lowtide
