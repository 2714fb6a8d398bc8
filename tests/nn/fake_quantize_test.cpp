#include "lowtide/nn/fake_quantize.h"

#include <gtest/gtest.h>
#include <torch/utils.h>

#include "lowtide/base/torch.h"

namespace lowtide {
namespace {

TEST(FakeQuantize, ValuesAreThoseOfTheCodes) {
  torch::manual_seed(1);
  const torch::Tensor x = torch::randn({5, 33});
  for (const RangeGroup group : {RangeGroup::kTensor, RangeGroup::kRow}) {
    const Range range = measure_range(x, group);
    EXPECT_TRUE(fake_quantize(x, range, 4).equal(decode(encode(x, range, 4))));
  }
  EXPECT_TRUE(fake_quantize(x, measure_range(x, RangeGroup::kTensor), 0).equal(x));
}

TEST(FakeQuantize, GradientPassesStraightThrough) {
  for (const int bits : {0, 2, 8}) {
    const torch::Tensor x = torch::tensor({-3.0f, -1.0f, 0.2f, 1.0f, 5.0f}).requires_grad_();
    const Range range{torch::tensor({-1.0f}), torch::tensor({2.0f})};
    const torch::Tensor dy = torch::tensor({1.0f, 2.0f, 3.0f, 4.0f, 5.0f});
    fake_quantize(x, range, bits).backward(dy);
    EXPECT_TRUE(x.grad().equal(dy)) << bits << " bits";
  }
}

TEST(FakeQuantize, MaskStopsTheGradientOfWhatWasClamped) {
  const torch::Tensor x = torch::tensor({-3.0f, -1.0f, 0.2f, 1.0f, 5.0f}).requires_grad_();
  const Range range{torch::tensor({-1.0f}), torch::tensor({2.0f})};
  fake_quantize(x, range, 4, Noise::none(), StraightThrough::kInside).sum().backward();
  EXPECT_TRUE(x.grad().equal(torch::tensor({0.0f, 1.0f, 1.0f, 1.0f, 0.0f})));
}

TEST(FakeQuantize, MaskGoesByTheRowsOwnRange) {
  const torch::Tensor x = torch::tensor({{0.0f, 2.0f}, {0.0f, 2.0f}}).requires_grad_();
  const Range range{torch::tensor({0.0f, 1.0f}), torch::tensor({1.0f, 1.0f})};
  fake_quantize(x, range, 4, Noise::none(), StraightThrough::kInside).sum().backward();
  EXPECT_TRUE(x.grad().equal(torch::tensor({{1.0f, 0.0f}, {0.0f, 1.0f}})));
}

}  // namespace
}  // namespace lowtide
