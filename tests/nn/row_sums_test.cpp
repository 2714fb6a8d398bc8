#include "lowtide/nn/row_sums.h"

#include <gtest/gtest.h>

#include "tests/testing.h"

namespace lowtide {
namespace {

// Rows and columns around the sizes at which chunks are cut, and large enough for several threads.
const std::vector<std::vector<std::int64_t>> kShapes{{1, 1},    {1, 1025},  {17, 3},     {256, 32}, {257, 33},
                                                     {5, 9000}, {700, 801}, {3000, 130}, {33000, 5}};

// A chunk's sum of n ≤ 256 terms is off by at most (n - 1)·2^-24 of their magnitudes, which for normal numbers are some
// 0.8·256: 1e-3 in all; the largest of the sums is never below a tenth.
constexpr double kTolerance = 1e-5;

TEST(RowSums, AreTheSumsOverRows) {
  for (const std::vector<std::int64_t>& shape : kShapes) {
    SCOPED_TRACE(testing::Message() << torch::IntArrayRef(shape));
    const torch::Tensor x = normal(shape, 1), weight = normal({shape[0]}, 2);
    EXPECT_TRUE(close_to(sum_rows(x), x.to(torch::kDouble).sum(0), kTolerance));
    EXPECT_TRUE(close_to(sum_rows(x, weight), torch::matmul(weight.to(torch::kDouble), x.to(torch::kDouble)),
                         kTolerance));
  }
}

TEST(RowSums, GoOverAllDimensionsButTheLast) {
  const torch::Tensor x = normal({3, 4, 5, 6}, 1);
  EXPECT_TRUE(close_to(sum_rows(x), x.sum({0, 1, 2}), kTolerance));
  EXPECT_TRUE(close_to(sum_rows(x.permute({0, 2, 3, 1})), x.sum({0, 2, 3}), kTolerance));
}

TEST(RowSums, OfNothingAreZero) { EXPECT_TRUE(same(sum_rows(torch::empty({0, 4})), torch::zeros({4}))); }

TEST(RowSums, DoNotDependOnTheNumberOfThreads) {
  for (const std::vector<std::int64_t>& shape : kShapes) {
    SCOPED_TRACE(testing::Message() << torch::IntArrayRef(shape));
    const torch::Tensor x = normal(shape, 1), weight = normal({shape[0]}, 2);
    expect_independent_of_threads([&] { return sum_rows(x); });
    expect_independent_of_threads([&] { return sum_rows(x, weight); });
  }
}

TEST(RepeatRows, IsABroadcastWhoseGradientIsASum) {
  const torch::Tensor x = normal({7, 9}, 1).requires_grad_(), gradient = normal({5, 7, 9}, 2);
  const torch::Tensor y = repeat_rows(x, 5);
  EXPECT_TRUE(same(y, x.unsqueeze(0).expand({5, 7, 9})));
  y.backward(gradient);
  EXPECT_TRUE(close_to(x.grad(), gradient.sum(0), kTolerance));
}

}  // namespace
}  // namespace lowtide
