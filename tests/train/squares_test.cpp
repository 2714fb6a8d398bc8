#include "lowtide/train/squares.h"

#include <ATen/Parallel.h>

#include "tests/testing.h"

namespace lowtide {
namespace {

// Numbers of very different size, whose sum shows the order in which they were added; a vocabulary has more rows than libtorch
// sums on one thread, 32,768.
TEST(Squares, DoNotDependOnTheNumberOfThreads) {
  const torch::Tensor exponents = uniform({200'000}, -30, 30, 1), tall = uniform({70'001, 3}, -30, 30, 2);
  const int before = at::get_num_threads();
  std::vector<std::vector<double>> sums;
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    const torch::Tensor row = torch::exp(exponents.to(torch::kDouble)), matrix = torch::exp(tall);
    sums.push_back({sum_in_order(row).item<double>(), sum_of_squares(matrix).item<double>(),
                    sum_of_squares(matrix.t()).item<double>(),
                    sum_in_order(row_squares(matrix)).item<double>()});
  }
  at::set_num_threads(before);
  EXPECT_EQ(sums[0], sums[1]);
  EXPECT_EQ(sums[0], sums[2]);
}

TEST(Squares, AreSumsOfSquares) {
  const torch::Tensor x = torch::tensor({{1.0F, 2.0F}, {3.0F, 4.0F}});
  EXPECT_EQ(sum_of_squares(x).item<double>(), 30);
  EXPECT_EQ(row_squares(x)[1].item<double>(), 25);
  EXPECT_EQ(sum_in_order(torch::tensor({1.5, 2.5}, torch::kDouble)).item<double>(), 4);
}

}  // namespace
}  // namespace lowtide
