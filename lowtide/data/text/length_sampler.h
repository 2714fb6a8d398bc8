#pragma once

#include <cstdint>
#include <vector>

#include "lowtide/base/json.h"

namespace lowtide {

// An endless stream of batches of items of similar length, so that little of a padded batch is padding. Every
// epoch holds every item once, in an order drawn from (seed, epoch) alone: items are shuffled, sorted by
// length within pools of 100 batches, cut into batches, and the batches shuffled. One batch of an epoch is
// smaller where their size does not divide the items.
class LengthSampler {
 public:
  LengthSampler(std::uint64_t seed, std::vector<std::int32_t> lengths, std::int64_t batch);

  std::vector<std::int64_t> next();

  std::int64_t items() const { return static_cast<std::int64_t>(lengths_.size()); }
  std::int64_t batches_per_epoch() const { return (items() + batch_ - 1) / batch_; }
  std::int64_t position() const { return position_; }  // batches drawn so far
  void seek(std::int64_t position) { position_ = position; }

  Json state() const;
  void restore(const Json& state);  // UserError for the state of another seed, number of items or batch

 private:
  void arrange(std::int64_t epoch);

  std::uint64_t seed_;
  std::vector<std::int32_t> lengths_;
  std::int64_t batch_;
  std::int64_t position_ = 0;
  std::int64_t arranged_epoch_ = -1;        // whose order is in the next two
  std::vector<std::int64_t> order_;         // items
  std::vector<std::int64_t> batch_starts_;  // where in it the batches begin, in the order in which they come
};

}  // namespace lowtide
