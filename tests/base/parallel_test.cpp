#include "lowtide/base/parallel.h"

#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <thread>

namespace lowtide {
namespace {

class ParallelFor : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { at::set_num_threads(GetParam()); }
  void TearDown() override { at::set_num_threads(before_); }

 private:
  const int before_ = at::get_num_threads();
};

TEST_P(ParallelFor, RunsEachTaskOnce) {
  for (const std::int64_t count : {0, 1, 2, 3, 7, 128, 1000}) {
    for (const std::int64_t grain : {0, 1, 5, 2000}) {
      std::vector<std::atomic<int>> done(static_cast<std::size_t>(count));
      parallel_for(count, grain, [&](std::int64_t i) { ++done[static_cast<std::size_t>(i)]; });
      for (const std::atomic<int>& times : done) EXPECT_EQ(times, 1) << count << " tasks";
    }
  }
}

TEST_P(ParallelFor, FewerTasksThanTheGrainStayOnOneThread) {
  const std::thread::id here = std::this_thread::get_id();
  parallel_for(9, 10, [&](std::int64_t) { EXPECT_EQ(std::this_thread::get_id(), here); });
}

class SeveralWorkers : public ParallelFor {};

TEST_P(SeveralWorkers, AnIdleWorkerTakesTasksOfTheOthers) {
  // The first task waits until all the others are done: half of those were in the same queue.
  constexpr std::int64_t kCount = 100;
  std::atomic<std::int64_t> done = 0;
  bool was_helped = false;
  parallel_for(kCount, 1, [&](std::int64_t task) {
    const auto too_late = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (task == 0 && done < kCount - 1 && std::chrono::steady_clock::now() < too_late)
      std::this_thread::yield();
    if (task == 0) was_helped = done == kCount - 1;
    ++done;
  });
  EXPECT_TRUE(was_helped);
}

TEST_P(SeveralWorkers, EveryWorkerHasATaskOfItsOwn) {
  // However late it comes: a queue's first task is for nobody else.
  constexpr std::int64_t kCount = 30;
  for (int round = 0; round < 50; ++round) {
    std::vector<std::thread::id> ran_by(kCount);
    parallel_for(kCount, 1, [&](std::int64_t task) {
      ran_by[static_cast<std::size_t>(task)] = std::this_thread::get_id();
    });
    std::set<std::thread::id> workers;
    for (int i = 0; i < GetParam(); ++i)
      workers.insert(ran_by[static_cast<std::size_t>(kCount * i / GetParam())]);
    EXPECT_EQ(workers.size(), static_cast<std::size_t>(GetParam()));
  }
}

TEST_P(ParallelFor, RunsTasksWithinATask) {
  std::atomic<std::int64_t> sum = 0;
  parallel_for(4, 1, [&](std::int64_t) { parallel_for(10, 1, [&](std::int64_t i) { sum += i; }); });
  EXPECT_EQ(sum, 4 * 45);
}

INSTANTIATE_TEST_SUITE_P(Threads, ParallelFor, testing::Values(1, 2, 3));
INSTANTIATE_TEST_SUITE_P(Threads, SeveralWorkers, testing::Values(2, 3));

}  // namespace
}  // namespace lowtide
