#include <fmt/format.h>

#include "lowtide/nn/quant_product.h"
#include "lowtide/quant/quantizer.h"
#include "tests/golden/layer_check.h"

namespace lowtide {
namespace {

// The value is one product and one sum away from the code: two roundings.
constexpr double kValue = 2e-7;

class GoldenQuantizer : public testing::TestWithParam<int> {
 protected:
  void expect_same(const std::string& what, RangeGroup group, const Noise& noise = Noise::none()) const {
    const torch::Tensor& x = golden_[what];
    const Quantized q = encode(x, measure_range(x, group), GetParam(), noise);
    EXPECT_TRUE(same(q.code, golden_[what + "_code"])) << what << ": codes";
    EXPECT_TRUE(close_to(decode(q), golden_[what + "_q"], kValue)) << what;
  }

  const Recording golden_ = Recording("quantizer.pt").under(fmt::format("b{}.", GetParam()));
};

TEST_P(GoldenQuantizer, WeightPerOutputChannel) { expect_same("weight", RangeGroup::kRow); }
TEST_P(GoldenQuantizer, ActivationPerTensor) { expect_same("act", RangeGroup::kTensor); }
TEST_P(GoldenQuantizer, SignedActivationPerTensor) { expect_same("signed_act", RangeGroup::kTensor); }
TEST_P(GoldenQuantizer, GradientWithRecordedNoise) {
  expect_same("grad", RangeGroup::kTensor, Noise::given(golden_["noise"]));
}

// Which elements of an error share a range, as a layer sees it: multiplied by one, it comes back as the gradient of the
// input. (0 and 1 are codes at any number of bits.) The product rounds some more times.
constexpr double kProduct = 6e-7;

TEST_P(GoldenQuantizer, ErrorBehindALinearLayer) {
  for (const std::string key : {"grad2d", "grad3d"}) {
    const torch::Tensor& error = golden_[key];
    const std::int64_t features = error.size(-1);
    QuantLinear linear =
        recorded_linear(torch::eye(features), {},
                        error.dim() == 3 ? ErrorRange::kPosition : ErrorRange::kTensor, {8, GetParam()});
    const torch::Tensor x = normal(error.sizes(), 1).to(error.device()).requires_grad_();
    linear(x).backward(error);
    EXPECT_TRUE(close_to(x.grad(), golden_[key + "_q"], kProduct)) << key;
  }
}

TEST_P(GoldenQuantizer, ErrorBehindAnAttentionProduct) {
  const torch::Tensor& error = golden_["grad4d"];  // items, heads, positions, units
  const torch::Tensor stack = error.flatten(0, 1);
  const torch::Tensor one = torch::eye(error.size(3), error.options()).expand({stack.size(0), -1, -1});
  QuantProduct product;
  product->attach(execution_at({8, GetParam()}), "product", 0);
  const torch::Tensor x = normal(stack.sizes(), 1).to(error.device()).requires_grad_();
  product->forward(x, one, error.size(0)).backward(stack);
  EXPECT_TRUE(close_to(x.grad(), golden_["grad4d_q"].flatten(0, 1), kProduct));
}

INSTANTIATE_TEST_SUITE_P(Bits, GoldenQuantizer, testing::Range(2, 9));

TEST(GoldenQuantizerDegenerate, ZerosAndConstants) {
  const Recording golden = Recording("quantizer.pt").under("degenerate.");
  for (const std::string key : {"zeros", "const"}) {
    const torch::Tensor& x = golden[key];
    for (const RangeGroup group : {RangeGroup::kRow, RangeGroup::kTensor}) {
      EXPECT_TRUE(same(decode(encode(x, measure_range(x, group), 4)), golden[key + "_q"])) << key;
    }
  }
}

}  // namespace
}  // namespace lowtide
