#pragma once

#include <cstdint>

namespace lowtide {

constexpr std::int64_t kMostShards = 1 << 14;  // noise tells so many apart

// The parts of a batch that this process computes, each as a batch of its own: `count` of `total` shards, from `first` on.
struct Shards {
  std::int64_t total = 1;
  std::int64_t first = 0;
  std::int64_t count = 1;

  std::int64_t end() const { return first + count; }

  // Where among so many items a shard begins; the next one's beginning is its end. Shards are equally large where their
  // number divides the items; of fewer items than shards, some have none.
  std::int64_t begin_of(std::int64_t shard, std::int64_t items) const { return items * shard / total; }
};

}  // namespace lowtide
