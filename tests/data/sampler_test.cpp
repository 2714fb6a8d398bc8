#include "lowtide/data/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "lowtide/data/split.h"
#include "tests/data/image_files.h"

namespace lowtide {
namespace {

using ::testing::HasSubstr;

std::vector<std::int64_t> numbers(std::int64_t count) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

TEST(EpochSampler, EveryEpochHoldsEveryItemOnce) {
  EpochSampler sampler(3, 101);
  std::set<std::vector<std::int64_t>> orders;
  for (int epoch = 0; epoch < 5; ++epoch) {
    auto order = sampler.next_batch(101);
    orders.insert(order);
    std::sort(order.begin(), order.end());
    EXPECT_EQ(order, numbers(101));
  }
  EXPECT_EQ(orders.size(), 5u);
}

TEST(EpochSampler, BatchesAreFullAcrossEpochs) {
  EpochSampler in_batches(3, 10), at_once(3, 10);
  std::vector<std::int64_t> joined;
  for (int i = 0; i < 10; ++i) {
    const auto batch = in_batches.next_batch(7);
    EXPECT_EQ(batch.size(), 7u);
    joined.insert(joined.end(), batch.begin(), batch.end());
  }
  EXPECT_EQ(joined, at_once.next_batch(70));
}

TEST(EpochSampler, ContinuesFromItsState) {
  EpochSampler whole(9, 50), resumed(9, 50);
  whole.next_batch(123);
  resumed.restore(Json::parse(whole.state().dump()));
  EXPECT_EQ(resumed.position(), 123);
  EXPECT_EQ(resumed.next_batch(200), whole.next_batch(200));
}

TEST(EpochSampler, RefusesTheStateOfAnother) {
  EpochSampler sampler(9, 50);
  sampler.next_batch(5);
  const Json state = sampler.state();
  for (const auto& [seed, items] : {std::pair{8, 50}, {9, 49}}) {
    EpochSampler other(static_cast<std::uint64_t>(seed), items);
    EXPECT_THAT(user_error([&] { other.restore(state); }), HasSubstr("expected seed"));
    EXPECT_EQ(other.position(), 0);
  }
  EXPECT_THAT(user_error([&] {
                sampler.restore({{"seed", 9}});
              }),
              HasSubstr("expected seed, items and position"));
  EXPECT_THAT(user_error([&] { sampler.restore(sampler.state_at(-1)); }), HasSubstr("position -1"));
}

TEST(HoldOut, DisjointAndComplete) {
  const HeldOut split = hold_out(1000, 100);
  EXPECT_EQ(split.valid.size(), 100u);
  std::vector<std::int64_t> all = split.train;
  all.insert(all.end(), split.valid.begin(), split.valid.end());
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, numbers(1000));
  EXPECT_TRUE(std::is_sorted(split.train.begin(), split.train.end()));
  EXPECT_TRUE(std::is_sorted(split.valid.begin(), split.valid.end()));
  EXPECT_EQ(hold_out(1000, 100).valid, split.valid);
  EXPECT_NE(hold_out(1000, 100, 1).valid, split.valid);
  // Not a block of them: the mean of 100 draws out of 1,000 has a standard deviation of 27.
  EXPECT_NEAR(std::accumulate(split.valid.begin(), split.valid.end(), 0.0) / 100, 499.5, 110);
}

TEST(HoldOut, LeavesSomethingToTrainOn) {
  EXPECT_EQ(hold_out(5, 0).train, numbers(5));
  EXPECT_EQ(hold_out(5, 4).train.size(), 1u);
  EXPECT_THAT(user_error([] { hold_out(5, 5); }),
              HasSubstr("5 items held out for validation of 5; expected 0 to 4"));
  EXPECT_THAT(user_error([] { hold_out(5, -1); }), HasSubstr("expected 0 to 4"));
}

}  // namespace
}  // namespace lowtide
