#pragma once

#include <cstdint>
#include <vector>

#include "lowtide/base/json.h"

namespace lowtide {

// An endless stream over `items` items. Position k lies in epoch k / items, and every epoch is a permutation
// drawn from (seed, epoch) alone: a stream continued from a saved position is the stream that was never
// interrupted.
class EpochSampler {
 public:
  EpochSampler(std::uint64_t seed, std::int64_t items);

  // The next `count` items, 0 .. items − 1; across the end of an epoch where need be, so that batches are
  // full.
  std::vector<std::int64_t> next_batch(std::int64_t count);

  std::uint64_t seed() const { return seed_; }
  std::int64_t items() const { return static_cast<std::int64_t>(order_.size()); }
  std::int64_t position() const { return position_; }
  void seek(std::int64_t position) { position_ = position; }

  Json state() const { return state_at(position_); }
  Json state_at(std::int64_t position) const;  // for those who draw ahead of what they use
  void restore(const Json& state);             // UserError for the state of another seed or number of items

 private:
  void shuffle(std::int64_t epoch);

  std::uint64_t seed_;
  std::int64_t position_ = 0;
  std::int64_t shuffled_epoch_ = -1;  // whose order is in order_
  std::vector<std::uint32_t> order_;
};

}  // namespace lowtide
