#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "lowtide/base/json.h"

namespace lowtide {

// The files of a finished run, as its readers need them.
struct FakeRun {
  std::string schedule = "CR 3:8 n=8 grad=8";
  int seed = 1;
  std::string metric = "accuracy";
  double test = 0.5;
  Json valid = nullptr;
  double relative_cost = 0.04;
  double gbitops_paper = 1, gbitops_actual = 1;
  double seconds = 10;
  int steps = 100;
  std::string model = "net", data_dir = "/data/digits";
};

inline void write_json(const std::filesystem::path& path, const Json& json) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << json.dump();
}

inline void write_started(const std::filesystem::path& folder, const FakeRun& run = {}) {
  write_json(folder / "run.json", {{"format", 1},
                                   {"recipe", {{"model", run.model}, {"data-dir", run.data_dir}}},
                                   {"schedule", run.schedule},
                                   {"seed", run.seed}});
}

inline void write_finished(const std::filesystem::path& folder, const FakeRun& run = {}) {
  write_started(folder, run);
  write_json(folder / "result.json",
             {{"metric", run.metric},
              {"test", run.test},
              {"valid", run.valid},
              {"relative_cost", run.relative_cost},
              {"gbitops", {{"paper", run.gbitops_paper}, {"actual", run.gbitops_actual}}},
              {"seconds", run.seconds},
              {"eval_bits", 8},
              {"steps", run.steps}});
}

}  // namespace lowtide
