// Two training steps of every task, at the sizes of its recipe, have the same bits whatever the number of threads. Small
// shapes would not show it: libtorch shares out no work below some 30,000 numbers.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "lowtide/tasks/task.h"
#include "lowtide/train/checkpoint.h"
#include "lowtide/train/optimizer.h"
#include "lowtide/train/trainer.h"
#include "tests/data/real_data.h"
#include "tests/recipe/recipes.h"
#include "tests/testing.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

struct RealTask {
  std::string name, recipe, data;      // `data` in the folder of real data
  std::vector<std::string> also = {};  // further arguments
};

struct ThreadCase {
  RealTask task;
  std::string engine;
};

Recipe recipe_of(const ThreadCase& of) {
  const fs::path recipe = fs::path(LOWTIDE_SOURCE_DIR) / "recipes" / (of.task.recipe + ".toml");
  std::vector<std::string> arguments{"--recipe", recipe.string(), "--engine", of.engine};
  if (!of.task.data.empty()) {
    arguments.insert(arguments.end(), {"--data-dir", (data_folder() / of.task.data).string()});
  }
  arguments.insert(arguments.end(), of.task.also.begin(), of.task.also.end());
  return parse_arguments(arguments);
}

NamedTensors copies(const NamedTensors& tensors) {
  NamedTensors result;
  for (const auto& [name, tensor] : tensors) result.emplace_back(name, tensor.detach().clone());
  return result;
}

// Gradients of both steps, and all that is left after them; from the same state each time.
class TwoSteps {
 public:
  explicit TwoSteps(const Recipe& recipe)
      : recipe_(recipe), task_(make_task(recipe)), state_(task_->state()), start_(copies(all())) {}

  NamedTensors run(int threads) {
    at::set_num_threads(threads);
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < start_.size(); ++i) all()[i].second.copy_(start_[i].second);
    task_->restore(state_);
    const auto optimizer = make_optimizer(recipe_.training, task_->model());
    NamedTensors results;
    for (std::int64_t step = 0; step < 2; ++step) {
      task_->execution().bits = {6, 8};
      task_->execution().step = step;
      task_->model().zero_grad(/*set_to_none=*/true);
      results.emplace_back("loss", with_gradients().clone());
      results.emplace_back("norm", clip_gradients(task_->model().parameters(), recipe_.training.clip));
      for (const auto& parameter : task_->model().named_parameters()) {
        if (!parameter->grad().defined()) continue;
        results.emplace_back("gradient of " + parameter.key(), parameter->grad().clone());
      }
      optimizer->step(recipe_.training.lr, torch::zeros({}, torch::kBool));
    }
    const NamedTensors left = copies(all());
    results.insert(results.end(), left.begin(), left.end());
    return results;
  }

 private:
  torch::Tensor with_gradients() {
    const torch::AutoGradMode gradients(true);
    return task_->train_step().loss;
  }

  NamedTensors all() const {
    NamedTensors tensors = model_tensors(task_->model());
    const NamedTensors carried = task_->carried();
    tensors.insert(tensors.end(), carried.begin(), carried.end());
    return tensors;
  }

  const Recipe recipe_;
  const std::unique_ptr<Task> task_;
  const Json state_;
  const NamedTensors start_;
};

class RealThreads : public testing::TestWithParam<ThreadCase> {};

TEST_P(RealThreads, DoNotChangeABitOfTwoSteps) {
  const Recipe recipe = recipe_of(GetParam());
  LOWTIDE_NEEDS_DATA(recipe.data.dir);
  const int before = at::get_num_threads();
  TwoSteps steps(recipe);
  const NamedTensors expected = steps.run(1);
  for (const int threads : {2, 3, 4, 5, 8}) {
    const NamedTensors results = steps.run(threads);
    ASSERT_EQ(results.size(), expected.size());
    for (std::size_t i = 0; i < results.size(); ++i) {
      EXPECT_TRUE(same(results[i].second, expected[i].second))
          << results[i].first << ", " << threads << " threads";
    }
  }
  at::set_num_threads(before);
}

std::vector<ThreadCase> every_task_with_both_engines() {
  const std::vector<RealTask> tasks{
      {"images", "demo", ""},
      {"lstm_small", "ptb-lstm-small", "ptb"},
      {"lstm", "ptb-lstm", "ptb"},
      {"transformer", "wikitext2-transformer", "wikitext-2"},
      {"bert",
       "sick-bert-small",
       "entailment/SICK",
       {"--vocabulary", (data_folder() / "vocab/bert-base-uncased/vocab.txt").string()}},
      {"gcn", "cora-gcn", "graphs/cora", {"--hidden", "256"}},
      {"gcn_sparse", "physics-gcn", "graphs/coauthor_physics.npz"},
      {"sage", "facebook-sage", "graphs/musae-facebook"},
      {"gat", "cora-gcn", "graphs/cora", {"--model", "gat", "--heads", "8", "--hidden", "256"}},
      // Smaller than its recipe says: a step of that takes seconds, and its losses are cut long before.
      {"detection", "voc-overfit", "VOCdevkit", {"--batch", "2", "--resize", "96", "--max-size", "160"}}};
  std::vector<ThreadCase> cases;
  for (const RealTask& task : tasks) {
    for (const char* engine : {"simulated", "integer"}) cases.push_back({task, engine});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Tasks, RealThreads, testing::ValuesIn(every_task_with_both_engines()),
                         [](const auto& instance) {
                           return instance.param.task.name + "_" + instance.param.engine;
                         });

}  // namespace
}  // namespace lowtide
