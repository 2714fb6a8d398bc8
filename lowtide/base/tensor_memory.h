#pragma once

#include <cstdint>

namespace lowtide {

// The CPU's tensors in kept memory (kept_memory.h), from the first call of install() on, and how much they take. What oneDNN
// takes for itself inside a primitive is neither kept nor seen.
class TensorMemory {
 public:
  static void install();

  static std::int64_t current();  // bytes
  static std::int64_t peak();     // since the last restart
  static void restart_peak();
};

}  // namespace lowtide
