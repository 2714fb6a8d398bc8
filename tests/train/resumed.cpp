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
  const RunPaths from{run}, to{copy};
  fs::copy(run, copy);  // the files, without the folder of checkpoints
  fs::remove(to.result());
  fs::create_directory(to.checkpoints());
  for (const std::int64_t at : checkpoint_steps(from)) {
    if (at <= step) fs::create_hard_link(from.checkpoint(at), to.checkpoint(at));
  }
  if (fs::exists(from.best())) fs::create_hard_link(from.best(), to.best());
}

std::vector<Json> timeless_metrics(const fs::path& folder) {
  std::vector<Json> lines = read_jsonl(RunPaths{folder}.metrics()).lines;
  for (Json& line : lines) {
    line.erase("seconds");
    line.erase("items_per_s");
    line.erase("took");
    line.erase("step_took");
  }
  return lines;
}

void for_each_engine(Recipe recipe, const fs::path& folder,
                     const std::function<void(const Recipe&, const fs::path&)>& body) {
  for (const char* engine : {"simulated", "integer"}) {
    SCOPED_TRACE(engine);
    recipe.precision.engine = engine;
    body(recipe, folder / engine);
  }
}

namespace {

void resume_after_each(const Recipe& recipe, const fs::path& folder, const std::vector<std::int64_t>& steps) {
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

void train_with_1_2_3_threads(Recipe recipe, const fs::path& folder) {
  recipe.running.checkpoint_every = 0;
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

}  // namespace

void expect_resumes_exactly(Recipe recipe, const fs::path& folder, const std::vector<std::int64_t>& steps) {
  recipe.running.checkpoint_every = 1;
  recipe.running.keep_checkpoints = 1000;
  for_each_engine(recipe, folder, [&](const Recipe& with_engine, const fs::path& place) {
    resume_after_each(with_engine, place, steps);
  });
}

void expect_run_independent_of_threads(const Recipe& recipe, const fs::path& folder) {
  for_each_engine(recipe, folder / "threads", train_with_1_2_3_threads);
}

}  // namespace lowtide
