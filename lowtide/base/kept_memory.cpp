#include "lowtide/base/kept_memory.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <mutex>
#include <new>
#include <utility>
#include <vector>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(begin, bytes)
#define ASAN_UNPOISON_MEMORY_REGION(begin, bytes)
#endif

namespace lowtide {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kCommitted = std::size_t{2} << 20;  // at a time: a huge page

std::atomic<std::int64_t> bytes_of_system{0};

constexpr std::size_t rounded_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// Addresses are reserved far ahead, so that an arena grows at its end; memory is there only up to where it has grown, and counts as
// the process's from then on (no MAP_NORESERVE): what the system has not got is refused at once, and nobody is killed later. Where
// addresses are limited (ulimit -v), little more is reserved than is needed.
std::size_t reserved_for(std::size_t bytes) {
  rlimit limit{};
  const bool is_limited = getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  const std::size_t ahead = is_limited ? std::size_t{16} << 20 : std::size_t{16} << 30;
  return rounded_up(std::max(ahead, bytes), kCommitted);
}

// Ranges of memory, taken first fit and given back.
class Ranges {
 public:
  std::byte* take(std::size_t bytes) {
    const auto fits = [&](const Range& range) { return range.bytes >= bytes; };
    auto range = std::ranges::find_if(free_, fits);
    if (range == free_.end()) {
      grow(bytes);
      range = std::ranges::find_if(free_, fits);
    }
    std::byte* begin = range->begin;
    range->begin += bytes;
    range->bytes -= bytes;
    if (range->bytes == 0) free_.erase(range);
    return begin;
  }

  void give_back(std::byte* begin, std::size_t bytes) {
    auto next = std::ranges::upper_bound(free_, begin, {}, &Range::begin);
    const bool joins_next = next != free_.end() && begin + bytes == next->begin;
    if (next != free_.begin()) {
      auto before = std::prev(next);
      if (before->begin + before->bytes == begin) {
        before->bytes += bytes;
        if (joins_next) {
          before->bytes += next->bytes;
          free_.erase(next);
        }
        return;
      }
    }
    if (joins_next) {
      next->begin = begin;
      next->bytes += bytes;
    } else {
      free_.insert(next, {begin, bytes});
    }
  }

 private:
  struct Range {
    std::byte* begin;
    std::size_t bytes;
  };

  // Gets memory from the system, so that a range of `bytes` bytes is free.
  void grow(std::size_t bytes) {
    const auto last = std::ranges::find_if(free_, [&](const Range& r) { return r.begin + r.bytes == end_; });
    const std::size_t there = last == free_.end() ? 0 : last->bytes;
    std::size_t more = rounded_up(bytes - there, kCommitted);
    if (more > static_cast<std::size_t>(reserved_end_ - end_)) {
      more = rounded_up(bytes, kCommitted);
      reserve(reserved_for(more));
    }
    if (mprotect(end_, more, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
    // A walk over channels-last tensors touches a page every few kilobytes: with small pages a core waits for their addresses.
    // A system that has no huge pages to give refuses, and nothing else changes.
    madvise(end_, more, MADV_HUGEPAGE);
    bytes_of_system += static_cast<std::int64_t>(more);
    end_ += more;
    ASAN_POISON_MEMORY_REGION(end_ - more, more);
    give_back(end_ - more, more);
  }

  // Reserves addresses, from the start of a huge page on.
  void reserve(std::size_t bytes) {
    void* memory = mmap(nullptr, bytes + kCommitted, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    end_ = reinterpret_cast<std::byte*>(rounded_up(reinterpret_cast<std::uintptr_t>(memory), kCommitted));
    reserved_end_ = end_ + bytes;
  }

  std::vector<Range> free_;                             // by address; neighbours are joined
  std::byte *end_ = nullptr, *reserved_end_ = nullptr;  // of the addresses that were reserved last
};

class Arena;

// In the cache line before each block.
struct Header {
  Arena* arena;
  std::size_t bytes;  // as asked for
};

class Arena {
 public:
  void* take(std::size_t bytes) {
    const std::size_t length = length_of(bytes);
    std::byte* begin;
    {
      const std::lock_guard lock(mutex_);
      begin = ranges_for(length).take(length);
    }
    ASAN_UNPOISON_MEMORY_REGION(begin, kLine + bytes);
    new (begin) Header{this, bytes};
    ASAN_POISON_MEMORY_REGION(begin, kLine);
    return begin + kLine;
  }

  void give_back(std::byte* begin, std::size_t bytes) {
    const std::size_t length = length_of(bytes);
    ASAN_POISON_MEMORY_REGION(begin, length);
    const std::lock_guard lock(mutex_);
    ranges_for(length).give_back(begin, length);
  }

 private:
  static std::size_t length_of(std::size_t bytes) {
    if (bytes > std::numeric_limits<std::size_t>::max() / 2) throw std::bad_alloc();
    return kLine + rounded_up(bytes, kLine);
  }
  // Single numbers live longer than what a step computes with, and would lie in the way of it.
  Ranges& ranges_for(std::size_t length) {
    constexpr std::size_t kSmall = 1024;
    return length <= kSmall ? small_ : large_;
  }

  std::mutex mutex_;
  Ranges small_, large_;
};

// Arenas of threads that have ended serve those that begin. None is ever destroyed: blocks may outlive their thread.
class Arenas {
 public:
  static Arenas& all() {
    static auto* arenas = new Arenas;
    return *arenas;
  }
  Arena* acquire() {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return new Arena;
    Arena* arena = idle_.back();
    idle_.pop_back();
    return arena;
  }
  void release(Arena* arena) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(arena);
  }

 private:
  std::mutex mutex_;
  std::vector<Arena*> idle_;
};

thread_local Arena* arena_of_thread = nullptr;

struct ArenaOfThread {
  ArenaOfThread() { arena_of_thread = Arenas::all().acquire(); }
  ~ArenaOfThread() { Arenas::all().release(std::exchange(arena_of_thread, nullptr)); }
};

Arena& arena() {
  if (arena_of_thread == nullptr) {
    thread_local const ArenaOfThread held;
    // A thread that ends may allocate after `held` was destroyed: then it takes an arena again.
    if (arena_of_thread == nullptr) arena_of_thread = Arenas::all().acquire();
  }
  return *arena_of_thread;
}

Header header_of(const void* block) {
  const std::byte* begin = static_cast<const std::byte*>(block) - kLine;
  ASAN_UNPOISON_MEMORY_REGION(begin, kLine);
  const Header header = *reinterpret_cast<const Header*>(begin);
  ASAN_POISON_MEMORY_REGION(begin, kLine);
  return header;
}

}  // namespace

void* take_kept(std::size_t bytes) { return arena().take(bytes); }

void give_kept_back(void* block) noexcept {
  if (block == nullptr) return;
  const Header header = header_of(block);
  header.arena->give_back(static_cast<std::byte*>(block) - kLine, header.bytes);
}

std::size_t kept_block_bytes(const void* block) { return header_of(block).bytes; }

std::int64_t kept_bytes() { return bytes_of_system; }

}  // namespace lowtide
