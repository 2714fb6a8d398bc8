#pragma once

#include <cstdint>

// Asks for memory ahead of its use, a request for every cache line of n elements.
//
// Always inlined, and so must be whatever does nothing but call these: GCC takes a function of prefetches alone for one
// without effect, and leaves out its calls.

#define LOWTIDE_FETCHES [[gnu::always_inline]]

namespace lowtide {

enum class Fetch { kToRead, kToReadLater, kToWrite };  // later: the second-level cache is near enough

template <Fetch kWhy, typename Element>
LOWTIDE_FETCHES inline void fetch(const Element* from, std::int64_t n) {
  constexpr std::int64_t kLine = 64 / sizeof(Element);
  constexpr int kWrites = kWhy == Fetch::kToWrite ? 1 : 0, kLocality = kWhy == Fetch::kToReadLater ? 2 : 3;
  for (std::int64_t i = 0; i < n; i += kLine) __builtin_prefetch(from + i, kWrites, kLocality);
}

}  // namespace lowtide
