#include "lowtide/nn/pointwise.h"

#include <gtest/gtest.h>

#include "tests/testing.h"

namespace lowtide {
namespace {

using Function = at::Tensor (*)(const at::Tensor&);

struct Passed {
  torch::Tensor y, dx;
};

Passed pass(Function function, const torch::Tensor& values, const torch::Tensor& gradient) {
  const torch::Tensor x = values.detach().requires_grad_();
  const torch::Tensor y = function(x);
  y.backward(gradient);
  return {y.detach(), x.grad()};
}

struct Pair {
  Function own, reference;
};
const std::vector<Pair> kFunctions{
    {sigmoid, [](const at::Tensor& x) { return x.sigmoid(); }},
    {[](const at::Tensor& x) -> at::Tensor { return lowtide::gelu(x); },
     [](const at::Tensor& x) { return at::gelu(x); }},
};

// Vectors' functions and the C library's differ in a unit of the last place or two.
constexpr double kTolerance = 5e-7;

TEST(Pointwise, IsLibtorchsFunctionWithItsGradient) {
  for (const std::vector<std::int64_t>& shape :
       std::vector<std::vector<std::int64_t>>{{1}, {3, 5}, {16384}, {7, 16385}, {0, 4}}) {
    for (const Pair& pair : kFunctions) {
      SCOPED_TRACE(testing::Message() << torch::IntArrayRef(shape));
      const torch::Tensor x = normal(shape, 1) * 3, gradient = normal(shape, 2);
      const Passed passed = pass(pair.own, x, gradient), expected = pass(pair.reference, x, gradient);
      EXPECT_EQ(passed.y.sizes(), expected.y.sizes());
      if (x.numel() == 0) continue;
      EXPECT_TRUE(close_to(passed.y, expected.y, kTolerance));
      EXPECT_TRUE(close_to(passed.dx, expected.dx, kTolerance));
    }
  }
}

TEST(Pointwise, TakesWhatDoesNotLieInOrder) {
  const torch::Tensor x = normal({40, 30}, 1).t(), gradient = normal({40, 30}, 2).t();
  for (const Pair& pair : kFunctions) {
    const Passed passed = pass(pair.own, x, gradient), expected = pass(pair.reference, x, gradient);
    EXPECT_TRUE(close_to(passed.y, expected.y, kTolerance));
    EXPECT_TRUE(close_to(passed.dx, expected.dx, kTolerance));
  }
}

TEST(Pointwise, DoesNotDependOnTheNumberOfThreads) {
  const torch::Tensor x = normal({101, 1009}, 1) * 3, gradient = normal({101, 1009}, 2);
  for (const Pair& pair : kFunctions) {
    expect_independent_of_threads([&] { return pass(pair.own, x, gradient).y; });
    expect_independent_of_threads([&] { return pass(pair.own, x, gradient).dx; });
  }
}

}  // namespace
}  // namespace lowtide
