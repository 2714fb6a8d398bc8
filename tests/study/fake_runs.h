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
  double seconds = 10;
  int steps = 100;
};

inline void write_json(const std::filesystem::path& path, const Json& json) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << json.dump();
}

inline void write_started(const std::filesystem::path& folder, const FakeRun& run = {}) {
  write_json(folder / "run.json",
             {{"format", 1}, {"recipe", {{"model", "net"}}}, {"schedule", run.schedule}, {"seed", run.seed}});
}

inline void write_finished(const std::filesystem::path& folder, const FakeRun& run = {}) {
  write_started(folder, run);
  write_json(folder / "result.json", {{"metric", run.metric},
                                      {"test", run.test},
                                      {"valid", run.valid},
                                      {"relative_cost", run.relative_cost},
                                      {"gbitops", {{"paper", 1.0}, {"actual", 1.0}}},
                                      {"seconds", run.seconds},
                                      {"eval_bits", 8},
                                      {"steps", run.steps}});
}

}  // namespace lowtide
