#include "lowtide/data/text/length_sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "tests/io/scratch.h"

namespace lowtide {
namespace {

// Lengths between 5 and 104, in no order.
std::vector<std::int32_t> lengths(std::int32_t items) {
  std::vector<std::int32_t> result;
  for (std::int32_t i = 0; i < items; ++i) result.push_back(5 + i * 37 % 100);
  return result;
}

TEST(LengthSampler, EveryEpochHoldsEveryItemOnce) {
  LengthSampler sampler(3, lengths(1003), 8);
  EXPECT_EQ(sampler.batches_per_epoch(), 126);
  std::set<std::vector<std::int64_t>> orders;
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<std::int64_t> order;
    int small = 0;
    for (int i = 0; i < 126; ++i) {
      const auto batch = sampler.next();
      small += batch.size() < 8;
      order.insert(order.end(), batch.begin(), batch.end());
    }
    EXPECT_EQ(small, 1);  // 1,003 = 125 · 8 + 3
    orders.insert(order);
    std::sort(order.begin(), order.end());
    std::vector<std::int64_t> all(1003);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(order, all);
  }
  EXPECT_EQ(orders.size(), 3u);
}

TEST(LengthSampler, BatchesAreOfSimilarLength) {
  const auto of = lengths(10'000);
  LengthSampler sampler(3, of, 10);
  std::vector<std::int32_t> shortest;
  for (std::int64_t i = 0; i < sampler.batches_per_epoch(); ++i) {
    const auto batch = sampler.next();
    std::int32_t low = 1000, high = 0;
    for (const std::int64_t item : batch) {
      low = std::min(low, of[static_cast<std::size_t>(item)]);
      high = std::max(high, of[static_cast<std::size_t>(item)]);
    }
    // A pool of 1,000 holds each of 100 lengths about ten times: a batch spans two or three of them.
    EXPECT_LE(high - low, 5);
    shortest.push_back(low);
  }
  EXPECT_FALSE(std::is_sorted(shortest.begin(), shortest.begin() + 20));  // but not the short ones first
}

TEST(LengthSampler, ContinuesFromItsState) {
  LengthSampler whole(9, lengths(500), 7), resumed(9, lengths(500), 7);
  for (int i = 0; i < 100; ++i) whole.next();
  resumed.restore(Json::parse(whole.state().dump()));
  EXPECT_EQ(resumed.position(), 100);
  for (int i = 0; i < 200; ++i) EXPECT_EQ(resumed.next(), whole.next());
}

TEST(LengthSampler, RefusesTheStateOfAnother) {
  LengthSampler sampler(9, lengths(50), 5);
  sampler.next();
  Json state = sampler.state();
  LengthSampler other(9, lengths(50), 6), seed(8, lengths(50), 5);
  EXPECT_TRUE(
      contains(user_error([&] { other.restore(state); }), "batch 5", "expected seed 9, 50 items, batch 6"));
  EXPECT_TRUE(contains(user_error([&] { seed.restore(state); }), "expected seed 8"));
  EXPECT_EQ(other.position(), 0);
  state["position"] = -3;
  EXPECT_TRUE(contains(user_error([&] { sampler.restore(state); }), "position -3"));
  EXPECT_TRUE(contains(user_error([&] { sampler.restore({{"seed", 9}}); }), "expected seed, items, batch"));
}

}  // namespace
}  // namespace lowtide
