#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lowtide/bench/step_bench.h"
#include "lowtide/ranks/ranks.h"

namespace lowtide {

struct RanksTiming {
  std::string engine;
  double alone_ms = 0;     // medians: one process with all threads
  double ranks_ms = 0;     // all ranks, with as many threads together
  double exchange_ms = 0;  // what is sent and summed between them, by itself
  std::int64_t bytes = 0;  // that a rank sends in a step
};

// Times whole training steps on made-up images, each batch in `shards` shards: by all ranks, and by the first of them alone
// while the others wait; in turn, so that the machine's noise hits both alike. `threads` are those of all ranks together. To be
// called by every rank; the first has the result.
std::vector<RanksTiming> bench_ranks(const StepBenchOptions& options, std::int64_t shards, int threads,
                                     const std::shared_ptr<Ranks>& ranks);

}  // namespace lowtide
