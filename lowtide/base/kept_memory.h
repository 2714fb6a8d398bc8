#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

namespace lowtide {

// Memory for what every step of training takes and gives back: asked of the system once, and kept. Each thread has an arena
// of its own, and a block is the first free range there, in order of addresses, that is long enough. So where a block lies
// follows from the blocks that are there now and from nothing before them: a step that takes and gives back what the
// one before did gets the same addresses, and the system is not asked again.

// Aligned to a cache line. Throws std::bad_alloc.
void* take_kept(std::size_t bytes);
// By any thread, into the arena that it came from.
void give_kept_back(void* block) noexcept;
std::size_t kept_block_bytes(const void* block);  // as asked for

// What all arenas together have of the system's memory.
std::int64_t kept_bytes();

struct GiveKeptBack {
  void operator()(void* block) const noexcept { give_kept_back(block); }
};
// Numbers; nothing is there before it is written.
template <typename T>
using KeptArray = std::unique_ptr<T[], GiveKeptBack>;

template <typename T>
KeptArray<T> kept_array(std::int64_t count) {
  static_assert(std::is_trivially_copyable_v<T>);
  return KeptArray<T>(static_cast<T*>(take_kept(static_cast<std::size_t>(count) * sizeof(T))));
}

// For containers.
template <typename T>
struct KeptAllocator {
  using value_type = T;

  KeptAllocator() = default;
  template <typename Other>
  KeptAllocator(const KeptAllocator<Other>&) {}  // NOLINT: as the standard asks for
  T* allocate(std::size_t count) { return static_cast<T*>(take_kept(count * sizeof(T))); }
  void deallocate(T* block, std::size_t) noexcept { give_kept_back(block); }
  bool operator==(const KeptAllocator&) const = default;
};
template <typename T>
using KeptVector = std::vector<T, KeptAllocator<T>>;

}  // namespace lowtide
