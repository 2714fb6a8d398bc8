#include "lowtide/base/tensor_memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <cstddef>
#include <cstring>

#include "lowtide/base/kept_memory.h"
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

void release(void* block) {
  if (block == nullptr) return;
  count(-static_cast<std::int64_t>(kept_block_bytes(block)));
  give_kept_back(block);
}

class KeepingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) LOWTIDE_ALLOCATE_CONST override {
    if (bytes == 0) return {nullptr, nullptr, &release, c10::kCPU};
    void* block = take_kept(bytes);
    count(static_cast<std::int64_t>(bytes));
    return {block, block, &release, c10::kCPU};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release; }

#if TORCH_VERSION_MAJOR >= 2
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
#endif
};

}  // namespace

void TensorMemory::install() {
  static KeepingAllocator allocator;
  c10::SetCPUAllocator(&allocator, /*priority=*/1);
}

std::int64_t TensorMemory::current() { return bytes_now; }
std::int64_t TensorMemory::peak() { return bytes_peak; }
void TensorMemory::restart_peak() { bytes_peak = bytes_now.load(); }

}  // namespace lowtide
