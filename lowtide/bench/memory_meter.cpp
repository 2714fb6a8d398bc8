#include "lowtide/bench/memory_meter.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>

#include "lowtide/base/torch_compat.h"

namespace lowtide {
namespace {

std::atomic<std::int64_t> bytes_now{0};
std::atomic<std::int64_t> bytes_peak{0};

void count(std::int64_t bytes) {
  const std::int64_t now = bytes_now.fetch_add(bytes) + bytes;
  std::int64_t peak = bytes_peak.load();
  while (now > peak && !bytes_peak.compare_exchange_weak(peak, now)) {
  }
}

// Before each block, one cache line that remembers its size.
constexpr std::size_t kAlignment = 64;

void release(void* memory) {
  if (memory == nullptr) return;
  void* block = static_cast<std::byte*>(memory) - kAlignment;
  count(-*static_cast<std::int64_t*>(block));
  std::free(block);
}

class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) LOWTIDE_ALLOCATE_CONST override {
    if (bytes == 0) return {nullptr, nullptr, &release, c10::kCPU};
    const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    void* block = std::aligned_alloc(kAlignment, rounded + kAlignment);
    if (block == nullptr) throw std::bad_alloc();
    *static_cast<std::int64_t*>(block) = static_cast<std::int64_t>(bytes);
    count(static_cast<std::int64_t>(bytes));
    void* memory = static_cast<std::byte*>(block) + kAlignment;
    return {memory, memory, &release, c10::kCPU};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release; }

#if TORCH_VERSION_MAJOR >= 2
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
#endif
};

}  // namespace

void MemoryMeter::install() {
  static CountingAllocator allocator;
  c10::SetCPUAllocator(&allocator, /*priority=*/1);
}

std::int64_t MemoryMeter::current() { return bytes_now; }
std::int64_t MemoryMeter::peak() { return bytes_peak; }
void MemoryMeter::restart_peak() { bytes_peak = bytes_now.load(); }

}  // namespace lowtide
