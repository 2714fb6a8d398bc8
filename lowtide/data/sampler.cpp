#include "lowtide/data/sampler.h"

#include <fmt/format.h>

#include <limits>
#include <numeric>
#include <utility>

#include "lowtide/base/error.h"
#include "lowtide/base/json_reason.h"
#include "lowtide/base/random.h"
#include "lowtide/base/whole_number.h"

namespace lowtide {

EpochSampler::EpochSampler(std::uint64_t seed, std::int64_t items) : seed_(seed) {
  LOWTIDE_CHECK(items >= 1 && items <= std::numeric_limits<std::uint32_t>::max(), "items to draw from");
  order_.resize(static_cast<std::size_t>(items));
}

std::vector<std::int64_t> EpochSampler::next_batch(std::int64_t count) {
  std::vector<std::int64_t> batch;
  batch.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i, ++position_) {
    const std::int64_t epoch = position_ / items();
    if (epoch != shuffled_epoch_) shuffle(epoch);
    batch.push_back(order_[static_cast<std::size_t>(position_ % items())]);
  }
  return batch;
}

// Fisher–Yates, from the identity each time: an order must not depend on the epochs shuffled before.
void EpochSampler::shuffle(std::int64_t epoch) {
  std::iota(order_.begin(), order_.end(), 0u);
  RandomStream random(seed_, RandomPurpose::kShuffle, static_cast<std::uint64_t>(epoch));
  for (std::size_t i = order_.size(); i > 1; --i) {
    std::swap(order_[i - 1], order_[random.below(static_cast<std::uint32_t>(i))]);
  }
  shuffled_epoch_ = epoch;
}

Json EpochSampler::state_at(std::int64_t position) const {
  return {{"seed", seed_}, {"items", items()}, {"position", position}};
}

void EpochSampler::restore(const Json& state) {
  std::uint64_t seed = 0;
  std::int64_t items = 0, position = 0;
  try {
    seed = state.at("seed").get<std::uint64_t>();
    items = state.at("items").get<std::int64_t>();
    position = state.at("position").get<std::int64_t>();
  } catch (const Json::exception& error) {
    throw UserError(fmt::format("sampler state: {}; expected seed, items and position", json_reason(error)));
  }
  if (seed != seed_ || items != this->items() || !is_whole_number(state.at("position"), 0, kMostCounted)) {
    throw UserError(
        fmt::format("sampler state of seed {}, {} items, position {}; expected seed {} and {} items", seed,
                    items, state.at("position").dump(), seed_, this->items()));
  }
  position_ = position;
}

}  // namespace lowtide
