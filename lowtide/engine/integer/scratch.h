#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace lowtide::integer {

// Memory that a thread keeps from call to call, aligned to a cache line; its contents do not last.
template <typename T>
class Scratch {
 public:
  T* at_least(std::int64_t count) {
    reserve(count);
    return get();
  }

  T* get() const { return memory_.get(); }

  void reserve(std::int64_t count) {
    if (!memory_ || count > capacity_) {
      const std::size_t bytes = (static_cast<std::size_t>(count) * sizeof(T) / 64 + 1) * 64;
      memory_.reset(static_cast<T*>(std::aligned_alloc(64, bytes)));
      if (!memory_) throw std::bad_alloc();
      capacity_ = count;
    }
  }

 private:
  struct Free {
    void operator()(T* memory) const { std::free(memory); }
  };
  std::unique_ptr<T, Free> memory_;
  std::int64_t capacity_ = 0;
};

}  // namespace lowtide::integer
