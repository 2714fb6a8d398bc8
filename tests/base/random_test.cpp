#include "lowtide/base/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace lowtide {
namespace {

TEST(RandomStream, SameWhereaboutsSameNumbers) {
  RandomStream a(7, RandomPurpose::kShuffle, 3);
  RandomStream b(7, RandomPurpose::kShuffle, 3);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(a.next(), b.next());
}

TEST(RandomStream, EveryCoordinateChangesTheStream) {
  std::set<std::uint32_t> first;
  first.insert(RandomStream(7, RandomPurpose::kShuffle, 3).next());
  first.insert(RandomStream(8, RandomPurpose::kShuffle, 3).next());
  first.insert(RandomStream(7ull | 1ull << 32, RandomPurpose::kShuffle, 3).next());
  first.insert(RandomStream(7, RandomPurpose::kSplit, 3).next());
  first.insert(RandomStream(7, RandomPurpose::kShuffle, 4).next());
  first.insert(RandomStream(7, RandomPurpose::kShuffle, 3ull | 1ull << 32).next());
  first.insert(RandomStream(7, RandomPurpose::kShuffle, 3, 1).next());
  EXPECT_EQ(first.size(), 7u);
}

TEST(RandomStream, BelowIsUniform) {
  // 6 cells of 10,000 expected: chi-square with 5 degrees of freedom exceeds 20.5 once in a thousand.
  std::vector<int> count(6);
  RandomStream stream(1, RandomPurpose::kAugmentation, 0);
  for (int i = 0; i < 60000; ++i) ++count[stream.below(6)];
  double chi_square = 0;
  for (const int n : count) chi_square += (n - 10000.0) * (n - 10000.0) / 10000.0;
  EXPECT_LT(chi_square, 20.5);
}

TEST(RandomStream, BelowOneIsZero) {
  RandomStream stream(1, RandomPurpose::kAugmentation, 0);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(stream.below(1), 0u);
}

TEST(RandomStream, UniformHasTheMomentsOfTheUniform) {
  RandomStream stream(1, RandomPurpose::kInitialisation, 0);
  const int n = 100000;
  double sum = 0, squares = 0;
  for (int i = 0; i < n; ++i) {
    const double u = stream.uniform();
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
    squares += u * u;
  }
  // Four standard errors: sqrt(1/12/n) = 0.00091, sqrt(4/45/n) = 0.00094.
  EXPECT_NEAR(sum / n, 1.0 / 2, 0.0037);
  EXPECT_NEAR(squares / n, 1.0 / 3, 0.0038);
}

}  // namespace
}  // namespace lowtide
