#pragma once

#include <cstdint>

namespace lowtide {

// Counts what libtorch allocates on the CPU, from the first call of install() on. What oneDNN takes for
// itself inside a primitive is not seen.
class MemoryMeter {
 public:
  static void install();

  static std::int64_t current();  // bytes
  static std::int64_t peak();     // since the last restart
  static void restart_peak();
};

}  // namespace lowtide
