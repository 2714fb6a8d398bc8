#include "lowtide/quant/pieces.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace lowtide {
namespace {

class PiecesTest : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { at::set_num_threads(GetParam()); }
  void TearDown() override { at::set_num_threads(before_); }

 private:
  const int before_ = at::get_num_threads();
};

TEST_P(PiecesTest, EachIsDoneOnce) {
  for (const std::int64_t count : {0, 1, 2, 3, 7, 128, 1000}) {
    for (const std::int64_t least : {0, 1, 5, 2000}) {
      std::vector<std::atomic<int>> done(static_cast<std::size_t>(count));
      for_each_piece(count, least, [&](std::int64_t i) { ++done[static_cast<std::size_t>(i)]; });
      for (const std::atomic<int>& times : done) EXPECT_EQ(times, 1) << count << " pieces";
    }
  }
}

TEST_P(PiecesTest, FewerThanTheLeastStayOnOneThread) {
  const std::thread::id here = std::this_thread::get_id();
  for_each_piece(9, 10, [&](std::int64_t) { EXPECT_EQ(std::this_thread::get_id(), here); });
}

class SeveralThreads : public PiecesTest {};

TEST_P(SeveralThreads, OneThatIsDoneTakesOverFromTheOthers) {
  // Whoever does the first piece is held up until all the others are done: half of those were in its own stretch.
  constexpr std::int64_t kCount = 100;
  std::atomic<std::int64_t> done = 0;
  bool was_helped = false;
  for_each_piece(kCount, 1, [&](std::int64_t piece) {
    const auto too_late = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (piece == 0 && done < kCount - 1 && std::chrono::steady_clock::now() < too_late)
      std::this_thread::yield();
    if (piece == 0) was_helped = done == kCount - 1;
    ++done;
  });
  EXPECT_TRUE(was_helped);
}

TEST_P(PiecesTest, WithinAThreadsWorkTheyAreDoneThereOneByOne) {
  std::atomic<std::int64_t> sum = 0;
  for_each_piece(4, 1, [&](std::int64_t) { for_each_piece(10, 1, [&](std::int64_t i) { sum += i; }); });
  EXPECT_EQ(sum, 4 * 45);
}

INSTANTIATE_TEST_SUITE_P(Threads, PiecesTest, testing::Values(1, 2, 3));
INSTANTIATE_TEST_SUITE_P(Threads, SeveralThreads, testing::Values(2, 3));

}  // namespace
}  // namespace lowtide
