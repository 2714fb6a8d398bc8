#include "lowtide/data/prefetch.h"

#include <gtest/gtest.h>

#include <new>

namespace lowtide {
namespace {

// A plan of 0, 1, 2, … that fails at 3 with `failure`.
auto failing_plan(auto failure) {
  return [next = 0, failure]() mutable -> std::optional<int> {
    if (next == 3) throw failure;
    return next++;
  };
}

TEST(OrderedPrefetcher, APlanThatFailsIsToldInItsPlace) {
  for (const int threads : {1, 3}) {
    OrderedPrefetcher<int, int> prefetcher(
        failing_plan(std::bad_alloc()), [](int work, const std::stop_token&) { return 10 * work; }, threads,
        4);
    for (const int expected : {0, 10, 20}) EXPECT_EQ(prefetcher.next(), expected);
    EXPECT_THROW(prefetcher.next(), std::bad_alloc);
    EXPECT_THROW(prefetcher.next(), std::bad_alloc) << "and by every call after";
  }
}

}  // namespace
}  // namespace lowtide
