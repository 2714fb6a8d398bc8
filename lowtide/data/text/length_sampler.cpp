#include "lowtide/data/text/length_sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "lowtide/base/error.h"
#include "lowtide/base/json_reason.h"
#include "lowtide/base/random.h"
#include "lowtide/base/whole_number.h"

namespace lowtide {
namespace {

constexpr std::int64_t kPoolBatches = 100;
constexpr std::uint32_t kItems = 0, kBatches = 1;  // streams

void shuffle(std::vector<std::int64_t>& values, RandomStream random) {
  for (std::size_t i = values.size(); i > 1; --i) {
    std::swap(values[i - 1], values[random.below(static_cast<std::uint32_t>(i))]);
  }
}

}  // namespace

LengthSampler::LengthSampler(std::uint64_t seed, std::vector<std::int32_t> lengths, std::int64_t batch)
    : seed_(seed), lengths_(std::move(lengths)), batch_(batch) {
  LOWTIDE_CHECK(batch >= 1 && !lengths_.empty() && items() <= std::numeric_limits<std::uint32_t>::max(),
                "items to make batches of");
}

std::vector<std::int64_t> LengthSampler::next() {
  const std::int64_t epoch = position_ / batches_per_epoch();
  if (epoch != arranged_epoch_) arrange(epoch);
  const std::int64_t begin = batch_starts_[static_cast<std::size_t>(position_++ % batches_per_epoch())];
  const std::int64_t end = std::min(begin + batch_, items());
  return {order_.begin() + begin, order_.begin() + end};
}

// From the beginning each time: an order must not depend on the epochs before.
void LengthSampler::arrange(std::int64_t epoch) {
  const auto index = static_cast<std::uint64_t>(epoch);
  order_.resize(lengths_.size());
  std::iota(order_.begin(), order_.end(), 0);
  shuffle(order_, RandomStream(seed_, RandomPurpose::kShuffle, index, kItems));
  const std::int64_t pool = kPoolBatches * batch_;
  for (std::int64_t begin = 0; begin < items(); begin += pool) {
    // Stable: items of one length stay in their random order.
    std::stable_sort(order_.begin() + begin, order_.begin() + std::min(begin + pool, items()),
                     [&](std::int64_t a, std::int64_t b) {
                       return lengths_[static_cast<std::size_t>(a)] < lengths_[static_cast<std::size_t>(b)];
                     });
  }
  batch_starts_.resize(static_cast<std::size_t>(batches_per_epoch()));
  for (std::size_t i = 0; i < batch_starts_.size(); ++i)
    batch_starts_[i] = static_cast<std::int64_t>(i) * batch_;
  shuffle(batch_starts_, RandomStream(seed_, RandomPurpose::kShuffle, index, kBatches));
  arranged_epoch_ = epoch;
}

Json LengthSampler::state() const {
  return {{"seed", seed_}, {"items", items()}, {"batch", batch_}, {"position", position_}};
}

void LengthSampler::restore(const Json& state) {
  std::uint64_t seed = 0;
  std::int64_t items = 0, batch = 0, position = 0;
  try {
    seed = state.at("seed").get<std::uint64_t>();
    items = state.at("items").get<std::int64_t>();
    batch = state.at("batch").get<std::int64_t>();
    position = state.at("position").get<std::int64_t>();
  } catch (const Json::exception& error) {
    throw UserError(
        fmt::format("sampler state: {}; expected seed, items, batch and position", json_reason(error)));
  }
  if (seed != seed_ || items != this->items() || batch != batch_ ||
      !is_whole_number(state.at("position"), 0, kMostCounted)) {
    throw UserError(fmt::format(
        "sampler state of seed {}, {} items, batch {}, position {}; expected seed {}, {} items, batch {}",
        seed, items, batch, state.at("position").dump(), seed_, this->items(), batch_));
  }
  position_ = position;
}

}  // namespace lowtide
