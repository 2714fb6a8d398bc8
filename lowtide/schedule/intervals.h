#pragma once

#include <algorithm>
#include <cstdint>

namespace lowtide {

// The steps of a closed loop that decides every so many: intervals of `every` steps, the last up to twice as long.
struct Intervals {
  std::int64_t steps = 0;
  std::int64_t every = 0;

  std::int64_t count() const { return steps / every; }
  std::int64_t last() const { return count() - 1; }
  std::int64_t begin(std::int64_t interval) const { return interval * every; }
  std::int64_t end(std::int64_t interval) const { return interval == last() ? steps : begin(interval + 1); }
  std::int64_t length(std::int64_t interval) const { return end(interval) - begin(interval); }
  std::int64_t of_step(std::int64_t step) const { return std::clamp<std::int64_t>(step / every, 0, last()); }
};

}  // namespace lowtide
