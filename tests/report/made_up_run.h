#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lowtide {

// A run folder as `lowtide train` leaves it, with numbers that look like training but are made up: the same
// for the same settings. Bits, costs and the ledger are the real ones of the schedule.
struct MadeUpRun {
  std::string schedule = "CR 3:8 n=8 grad=8";
  std::uint64_t seed = 1;
  std::int64_t steps = 200;
  std::int64_t log_every = 10;
  std::int64_t eval_every = 50;
  bool finished = true;
  std::int64_t stopped_at = 0;  // of a run that is not finished: steps done
  bool landscape = false;
  bool old = false;  // as it was logged before lines had bit operations
  std::string model = "cifar-resnet8";
  std::int64_t lr_delay = 0;
  std::int64_t plateau_every = 0;
  int eval_bits = -1;
  std::int64_t layer_stats = 0;
  std::vector<std::string> layer_bits = {};
};

void write_run(const std::filesystem::path& folder, const MadeUpRun& run);

}  // namespace lowtide
