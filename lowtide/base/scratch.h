#pragma once

#include <cstdint>

#include "lowtide/base/kept_memory.h"

namespace lowtide {

// Numbers in memory that grows to the most that was needed, and stays; they do not last when it grows. As a `thread_local` it is
// what a thread keeps from call to call.
template <typename T>
class Scratch {
 public:
  T* at_least(std::int64_t count) {
    reserve(count);
    return get();
  }

  T* get() const { return memory_.get(); }

  void reserve(std::int64_t count) {
    if (memory_ && count <= capacity_) return;
    memory_.reset();
    memory_ = kept_array<T>(count);
    capacity_ = count;
  }

 private:
  KeptArray<T> memory_;
  std::int64_t capacity_ = 0;
};

}  // namespace lowtide
