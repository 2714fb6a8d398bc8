#include "tests/train/resumed.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "lowtide/io/jsonl.h"
#include "lowtide/train/run_folder.h"
#include "lowtide/train/trainer.h"
#include "tests/train/small_run.h"

namespace lowtide {

namespace fs = std::filesystem;

Json train(const Recipe& recipe, const fs::path& folder, bool resume) {
  return to_json(Trainer(recipe, "test").run(folder, resume).result);
}

std::string last_checkpoint(const Recipe& recipe, const fs::path& folder) {
  return file_bytes(RunPaths{folder}.checkpoint(recipe.training.steps));
}

void cut_after(const fs::path& run, const fs::path& copy, std::int64_t step) {
  fs::copy(run, copy, fs::copy_options::recursive);
  const RunPaths paths{copy};
  for (const std::int64_t at : checkpoint_steps(paths)) {
    if (at > step) fs::remove(paths.checkpoint(at));
  }
  fs::remove(paths.result());
  fs::remove(paths.averaged());
}

std::vector<Json> timeless_metrics(const fs::path& folder) {
  std::vector<Json> lines = read_jsonl(RunPaths{folder}.metrics()).lines;
  for (Json& line : lines) {
    line.erase("seconds");
    line.erase("items_per_s");
  }
  return lines;
}

void expect_resumes_exactly(Recipe recipe, const fs::path& folder, const std::vector<std::int64_t>& steps) {
  recipe.running.checkpoint_every = 1;
  recipe.running.keep_checkpoints = 1000;
  const fs::path whole = folder / "whole";
  const Json result = train(recipe, whole);
  const std::int64_t last = result.at("steps");
  const std::string expected = file_bytes(RunPaths{whole}.checkpoint(last));
  for (const std::int64_t step : steps) {
    const fs::path resumed = folder / ("resumed" + std::to_string(step));
    cut_after(whole, resumed, step);
    const Json resumed_result = train(recipe, resumed, /*resume=*/true);
    EXPECT_EQ(file_bytes(RunPaths{resumed}.checkpoint(last)), expected) << "after step " << step;
    EXPECT_EQ(resumed_result.at("test"), result.at("test")) << "after step " << step;
    EXPECT_EQ(resumed_result.at("valid"), result.at("valid")) << "after step " << step;
    EXPECT_EQ(resumed_result.value("best", Json()), result.value("best", Json())) << "after step " << step;
    EXPECT_EQ(timeless_metrics(resumed), timeless_metrics(whole)) << "after step " << step;
    if (recipe.training.keep_best) {
      EXPECT_EQ(file_bytes(RunPaths{resumed}.best()), file_bytes(RunPaths{whole}.best()))
          << "after step " << step;
    }
  }
}

void expect_run_independent_of_threads(Recipe recipe, const fs::path& folder) {
  std::vector<std::string> checkpoints;
  const int before = at::get_num_threads();
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    recipe.running.loader_threads = threads;
    const fs::path run = folder / std::to_string(threads);
    train(recipe, run);
    checkpoints.push_back(last_checkpoint(recipe, run));
  }
  at::set_num_threads(before);
  EXPECT_EQ(checkpoints[0], checkpoints[1]);
  EXPECT_EQ(checkpoints[0], checkpoints[2]);
}

}  // namespace lowtide
