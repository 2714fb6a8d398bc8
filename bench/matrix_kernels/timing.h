#pragma once

#include <functional>
#include <string>
#include <vector>

namespace lowtide::cuda::bench {

struct Timing {
  std::string name;
  double bytes, operations;
  std::function<void(int)> launch;  // with buffers of this turn
};
inline std::vector<Timing> timings;  // NOLINT: all that are to be made

double microseconds(const Timing& t);

}  // namespace lowtide::cuda::bench
