#include "lowtide/data/split.h"

#include <fmt/format.h>

#include <limits>
#include <numeric>
#include <utility>

#include "lowtide/base/error.h"
#include "lowtide/base/random.h"

namespace lowtide {

HeldOut hold_out(std::int64_t items, std::int64_t validation, std::uint64_t split_seed) {
  LOWTIDE_CHECK(items >= 0 && items <= std::numeric_limits<std::uint32_t>::max(),
                "too many items to draw from");
  if (validation < 0 || validation >= items) {
    throw UserError(fmt::format("{} items held out for validation of {}; expected 0 to {}", validation, items,
                                items - 1));
  }
  // The first `validation` steps of a Fisher–Yates shuffle draw that many items without repetition.
  std::vector<std::int64_t> order(static_cast<std::size_t>(items));
  std::iota(order.begin(), order.end(), 0);
  std::vector<bool> held(order.size());
  RandomStream random(split_seed, RandomPurpose::kSplit, 0);
  for (std::size_t i = 0; i < static_cast<std::size_t>(validation); ++i) {
    std::swap(order[i], order[i + random.below(static_cast<std::uint32_t>(order.size() - i))]);
    held[static_cast<std::size_t>(order[i])] = true;
  }
  HeldOut result;
  for (std::size_t i = 0; i < held.size(); ++i) {
    (held[i] ? result.valid : result.train).push_back(static_cast<std::int64_t>(i));
  }
  return result;
}

std::vector<std::int64_t> sample_of(const std::vector<std::int64_t>& items, std::int64_t count) {
  const auto all = static_cast<std::int64_t>(items.size());
  if (count >= all) return items;
  std::vector<std::int64_t> sample;
  for (const std::int64_t place : hold_out(all, count).valid)
    sample.push_back(items[static_cast<std::size_t>(place)]);
  return sample;
}

}  // namespace lowtide
