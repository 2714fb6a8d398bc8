#include "lowtide/nn/pixel_mean.h"

#include <gtest/gtest.h>

#include "tests/testing.h"

namespace lowtide {
namespace {

struct Passed {
  torch::Tensor mean, dx;
};

template <typename Mean>
Passed pass(const torch::Tensor& values, const torch::Tensor& gradient, const Mean& mean) {
  const torch::Tensor x = values.detach().requires_grad_();
  const torch::Tensor y = mean(x);
  y.backward(gradient);
  return {y.detach(), x.grad()};
}

TEST(PixelMean, IsTheMeanAndHasItsGradient) {
  const std::vector<std::vector<std::int64_t>> shapes{
      {3, 64, 8, 8}, {2, 5, 7, 3}, {4, 1, 2, 2}, {1, 17, 1, 1}, {40, 33, 9, 9}};
  for (const std::vector<std::int64_t>& shape : shapes) {
    for (const auto format : {torch::MemoryFormat::ChannelsLast, torch::MemoryFormat::Contiguous}) {
      SCOPED_TRACE(testing::Message() << torch::IntArrayRef(shape) << ", " << format);
      const torch::Tensor x = normal(shape, 1).contiguous(format), gradient = normal({shape[0], shape[1]}, 2);
      const Passed expected = pass(x, gradient, [](const torch::Tensor& t) { return t.mean({2, 3}); });
      const Passed passed = pass(x, gradient, pixel_mean);
      EXPECT_TRUE(close_to(passed.mean, expected.mean, 1e-6));
      EXPECT_TRUE(close_to(passed.dx, expected.dx, 1e-6));
    }
  }
}

TEST(PixelMean, TakesAGradientThatIsSpreadFromOneNumber) {
  const torch::Tensor x =
      normal({2, 16, 4, 4}, 1).contiguous(torch::MemoryFormat::ChannelsLast).requires_grad_();
  pixel_mean(x).sum().backward();  // whose gradient has strides of zero
  EXPECT_TRUE(close_to(x.grad(), torch::full_like(x, 1.0 / 16), 1e-6));
}

TEST(PixelMean, DoesNotDependOnTheNumberOfThreads) {
  const torch::Tensor x = normal({128, 64, 8, 8}, 1).contiguous(torch::MemoryFormat::ChannelsLast);
  const torch::Tensor gradient = normal({128, 64}, 2);
  expect_independent_of_threads([&] { return pass(x, gradient, pixel_mean).mean; });
  expect_independent_of_threads([&] { return pass(x, gradient, pixel_mean).dx; });
}

}  // namespace
}  // namespace lowtide
