#include "tests/train/kept_best.h"

#include <gtest/gtest.h>

#include "lowtide/io/jsonl.h"
#include "lowtide/tasks/task.h"
#include "lowtide/train/checkpoint.h"
#include "lowtide/train/metric.h"
#include "lowtide/train/run_folder.h"
#include "lowtide/train/trainer.h"
#include "tests/train/resumed.h"

namespace lowtide {
namespace {

// The first of the best lines of held-out items.
Json best_line(const RunPaths& paths, const Metric& metric) {
  const std::string name(metric.name);
  Json best;
  for (const Json& line : read_jsonl(paths.metrics()).lines) {
    if (line.value("split", "") != "valid" || line.value("final", false)) continue;
    const double sign = metric.higher_is_better ? 1 : -1;
    if (best.is_null() || sign * line.at(name).get<double>() > sign * best.at(name).get<double>())
      best = line;
  }
  return best;
}

void keep_best(Recipe recipe, const std::filesystem::path& folder) {
  recipe.training.keep_best = true;
  recipe.running.checkpoint_every = 1;
  recipe.running.keep_checkpoints = 1000;
  const RunPaths paths{folder / "best"};
  const Json result = train(recipe, paths.folder), best = result.at("best");
  const auto task = make_task(recipe);
  const Metric& metric = find_metric(task->metric_name());
  const Json expected = best_line(paths, metric);
  ASSERT_TRUE(expected.is_object());
  EXPECT_EQ(best.at("step"), expected.at("step"));
  EXPECT_EQ(best.at("valid"), expected.at(std::string(metric.name)));

  const auto test_of = [&](const std::filesystem::path& checkpoint) {
    read_checkpoint_tensors(checkpoint, model_tensors(task->model()));
    return task->evaluate(Split::kTest, evaluation_bits(recipe.precision)).metric;
  };
  EXPECT_EQ(best.at("test").get<double>(), test_of(paths.checkpoint(best.at("step"))));
  EXPECT_EQ(best.at("test").get<double>(), test_of(paths.best()));
  EXPECT_EQ(result.at("test").get<double>(), test_of(paths.checkpoint(recipe.training.steps)));
  EXPECT_EQ(read_checkpoint_state(paths.best()).at("step"), best.at("step"));

  recipe.training.keep_best = false;
  recipe.running.checkpoint_every = 0;
  const Json without = train(recipe, folder / "without");
  EXPECT_EQ(without.at("test"), result.at("test")) << "keeping the best changes no step";
  EXPECT_FALSE(without.contains("best"));
  EXPECT_FALSE(std::filesystem::exists(RunPaths{folder / "without"}.best()));
}

}  // namespace

void expect_keeps_best(const Recipe& recipe, const std::filesystem::path& folder) {
  for_each_engine(recipe, folder, keep_best);
}

}  // namespace lowtide
