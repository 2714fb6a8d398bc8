// Every task that is not made of images trains on a GPU: its gradients are those of the CPU, and its captured steps have the
// bits of steps made one by one. Of images too, captured evaluations have those of evaluations made batch by batch.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>

#include <algorithm>
#include <map>

#include "lowtide/io/file.h"
#include "lowtide/tasks/task.h"
#include "lowtide/train/checkpoint.h"
#include "lowtide/train/optimizer.h"
#include "lowtide/train/step_graph.h"
#include "tests/io/scratch.h"
#include "tests/tasks/small_papers.h"
#include "tests/testing.h"
#include "tests/train/small_run.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  write_atomically(path, std::string_view(text));
}

// 40 words in a line; windows of 9 rows do not divide the text, so the last of a pass is shorter.
void write_text(const fs::path& folder) {
  std::string text;
  for (int i = 0; i < 700; ++i) text += fmt::format("w{}{}", i * i % 37, i % 40 == 39 ? "\n" : " ");
  for (const char* part : {"train", "valid", "test"}) write(folder / fmt::format("ptb.{}.txt", part), text);
}

// Pairs of four lengths.
void write_pairs(const fs::path& folder) {
  std::string vocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n", pairs;
  for (int i = 0; i < 8; ++i) vocabulary += fmt::format("w{}\n", i);
  for (int i = 0; i < 96; ++i) {
    for (int word = 0; word <= i % 4; ++word) pairs += fmt::format("w{} ", (i * 3 + word) % 8);
    pairs += fmt::format("\tw{}\t{}\n", i % 8, i % 3);
  }
  write(folder / "vocab.txt", vocabulary);
  for (const char* part : {"train", "valid", "test"}) write(folder / fmt::format("{}.tsv", part), pairs);
}

Recipe text_recipe(const fs::path& data, const std::string& model) {
  write_text(data);
  Recipe recipe;
  recipe.data.format = "ptb";
  recipe.data.dir = data.string();
  recipe.data.length = 9;
  recipe.model.name = model;
  recipe.model.hidden = 24;
  recipe.model.heads = 3;
  recipe.model.layers = 2;
  recipe.model.dropout = 0.1;
  recipe.training.batch = 6;
  recipe.training.optimizer = model == "lstm" ? "sgd" : "adam";
  return recipe;
}

Recipe pair_recipe(const fs::path& data) {
  write_pairs(data);
  Recipe recipe;
  recipe.data.format = "pairs";
  recipe.data.dir = data.string();
  recipe.data.vocabulary = (data / "vocab.txt").string();
  recipe.data.length = 12;
  recipe.model.name = "bert";
  recipe.model.hidden = 24;
  recipe.model.heads = 3;
  recipe.model.layers = 2;
  recipe.model.feed_forward = 32;
  recipe.model.dropout = 0.1;
  recipe.training.batch = 16;
  recipe.training.optimizer = "adamw";
  return recipe;
}

// As wide as kernels for rows of 128 numbers and heads of 32 want it.
Recipe wide_pair_recipe(const fs::path& data) {
  Recipe recipe = pair_recipe(data);
  recipe.model.hidden = 128;
  recipe.model.heads = 4;
  recipe.model.feed_forward = 256;
  return recipe;
}

Recipe paper_recipe(const fs::path& data, const std::string& model) {
  write_papers(data);
  Recipe recipe = node_recipe(data);
  recipe.model.name = model;
  return recipe;
}

Recipe image_recipe(const fs::path& data) {
  write_small_dataset(data);
  return small_recipe(data);
}

Recipe recipe_of(const std::string& name, const fs::path& data) {
  if (name == "images") return image_recipe(data);
  if (name == "bert") return pair_recipe(data);
  if (name == "wide_bert") return wide_pair_recipe(data);
  return name == "lstm" || name == "transformer" ? text_recipe(data, name) : paper_recipe(data, name);
}

// A task that takes steps, on its own or captured.
class Steps {
 public:
  Steps(Recipe recipe, const std::string& engine, const std::string& device, bool captured = false) {
    recipe.precision.engine = engine;
    recipe.running.device = device;
    task_ = make_task(recipe);
    optimizer_ = make_optimizer(recipe.training, task_->model());
    const torch::Device where = task_->model().parameters()[0].device();
    halted_ = torch::zeros({}, torch::TensorOptions(torch::kBool).device(where));
    task_->model().train();
    if (captured) graph_ = std::make_unique<StepGraph>(task_->model(), task_->execution(), where);
  }

  void compute_gradients(Bits bits) {
    task_->execution().bits = bits;
    task_->draw_batch();
    task_->model().zero_grad(/*set_to_none=*/true);
    task_->compute_step();
  }

  void step(Bits bits) {
    task_->execution().bits = bits;
    task_->draw_batch();
    const auto work = [&] {
      task_->model().zero_grad(/*set_to_none=*/true);
      task_->compute_step();
      optimizer_->step(kRate, halted_, graph_ ? graph_->parameters() : nullptr);
    };
    if (graph_) {
      graph_->run(kRate, work, task_->batch_shape());
    } else {
      work();
    }
    ++task_->execution().step;
  }

  // All weights a little off, by up to this share.
  void nudge(double share) {
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& parameter : task_->model().parameters())
      parameter.mul_(1 + share * torch::linspace(-1, 1, parameter.numel()).view_as(parameter));
  }

  NamedTensors gradients() const {
    NamedTensors all;
    for (const auto& parameter : task_->model().named_parameters())
      if (parameter->grad().defined()) all.emplace_back(parameter.key(), parameter->grad().cpu());
    return all;
  }
  NamedTensors state() const {
    NamedTensors all;
    for (const auto& part : {model_tensors(task_->model()), task_->carried()})
      for (const auto& [name, tensor] : part) all.emplace_back(name, tensor.detach().cpu());
    return all;
  }
  const StepGraph& graph() const { return *graph_; }
  Task& task() { return *task_; }

 private:
  static constexpr double kRate = 0.01;

  std::unique_ptr<Task> task_;
  std::unique_ptr<Optimizer> optimizer_;
  torch::Tensor halted_;
  std::unique_ptr<StepGraph> graph_;
};

// How far apart gradients of sums in another order may be: such sums differ by some 1e-6, which small networks hardly see.
constexpr double kOtherOrder = 2e-5;
// In those of attention it moves codes that lie on a border, by 1/255 or 1/15 of a range: as far as weights that are 1e-6 off move them
// on a CPU. Which codes that are is chance, so a few times as far. Noise of another key would be some percent, a wrong scale or mask
// more.
constexpr double kNudge = 1e-6, kChance = 4;
bool has_attention(const std::string& model) {
  return model == "transformer" || model == "bert" || model == "wide_bert";
}

// A key's bias moves all scores of a row alike, which softmax does not see: its gradient is rounding alone.
bool has_gradient(const std::string& parameter) { return parameter.find("key.bias") == std::string::npos; }

class CudaTasks : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA device, or a build without CUDA";
  }
  Recipe recipe() const { return recipe_of(GetParam(), folder_ / "data"); }

  const ScratchFolder folder_;
};

// Relative distances of all gradients, by parameter; a seed adds one to each.
using Distances = std::map<std::string, std::vector<double>>;
void add_distances(const NamedTensors& actual, const NamedTensors& expected, Distances& distances) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double distance = (actual[i].second - expected[i].second).norm().item<double>();
    distances[actual[i].first].push_back(distance / expected[i].second.norm().item<double>());
  }
}
double median(std::vector<double> of) {
  std::sort(of.begin(), of.end());
  return of[of.size() / 2];
}

TEST_P(CudaTasks, GradientsAreThoseOfTheCpu) {
  for (const Bits bits : {Bits{8, 8}, Bits{4, 6}}) {
    Distances there_and_here, nudged_and_here;
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      Recipe seeded = recipe();
      seeded.training.seed = seed;
      Steps here(seeded, "simulated", "cpu"), there(seeded, "cuda", "cuda");
      here.compute_gradients(bits);
      there.compute_gradients(bits);
      add_distances(there.gradients(), here.gradients(), there_and_here);
      if (!has_attention(GetParam())) continue;
      Steps nudged(seeded, "simulated", "cpu");
      nudged.nudge(kNudge);
      nudged.compute_gradients(bits);
      add_distances(nudged.gradients(), here.gradients(), nudged_and_here);
    }
    for (const auto& [name, of_seeds] : there_and_here) {
      if (!has_gradient(name)) continue;
      const double moved = has_attention(GetParam()) ? kChance * median(nudged_and_here.at(name)) : 0;
      EXPECT_LT(median(of_seeds), kOtherOrder + moved)
          << name << " at " << bits.forward << " and " << bits.backward << " bits";
    }
  }
}

TEST_P(CudaTasks, ReplayedStepsHaveTheBitsOfStepsMadeOneByOne) {
  Steps plain(recipe(), "cuda", "cuda"), captured(recipe(), "cuda", "cuda", /*captured=*/true);
  ASSERT_TRUE(plain.task().is_capturable());
  for (int i = 0; i < 30; ++i) {
    const Bits bits{3 + i % 6, 5 + i % 4};
    plain.step(bits);
    captured.step(bits);
  }
  const NamedTensors expected = plain.state(), actual = captured.state();
  for (std::size_t i = 0; i < actual.size(); ++i)
    EXPECT_TRUE(same(actual[i].second, expected[i].second)) << actual[i].first;
  EXPECT_GT(captured.graph().captures(), 0);
}

class CudaEvaluations : public CudaTasks {};

TEST_P(CudaEvaluations, ReplayedOnesHaveTheBitsOfThoseMadeBatchByBatch) {
  Steps steps(recipe(), "cuda", "cuda", /*captured=*/true);
  Task& task = steps.task();
  // Whoever listens to layers is told of each.
  const auto batch_by_batch = [&](Bits bits) {
    task.execution().listener = [](const LayerEvent&) {};
    const Evaluation evaluation = task.evaluate(Split::kTest, bits);
    task.execution().listener = nullptr;
    return evaluation;
  };
  std::vector<double> losses;
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 5; ++i) steps.step({3 + i, 8});
    for (const Bits bits : {Bits{8, 8}, Bits{4, 8}, Bits{0, 0}}) {
      const Evaluation replayed = task.evaluate(Split::kTest, bits), plain = batch_by_batch(bits);
      EXPECT_EQ(replayed.loss, plain.loss) << bits.forward << " bits, round " << round;
      EXPECT_EQ(replayed.metric, plain.metric);
      EXPECT_EQ(replayed.items, plain.items);
      losses.push_back(replayed.loss);
    }
  }
  EXPECT_NE(losses[0], losses[1]) << "of other bits";
  EXPECT_NE(losses[0], losses[3]) << "of other weights";
  EXPECT_EQ(task.evaluation_captures() > 0, GetParam() != "gcn") << "a whole graph is evaluated at once";
}

INSTANTIATE_TEST_SUITE_P(All, CudaEvaluations,
                         testing::Values("images", "lstm", "transformer", "bert", "gcn"),
                         [](const auto& test) { return test.param; });

INSTANTIATE_TEST_SUITE_P(All, CudaTasks,
                         testing::Values("lstm", "transformer", "bert", "wide_bert", "gcn", "sage", "gat"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace lowtide
