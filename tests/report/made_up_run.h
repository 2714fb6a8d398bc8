#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

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
};

void write_run(const std::filesystem::path& folder, const MadeUpRun& run);

}  // namespace lowtide
