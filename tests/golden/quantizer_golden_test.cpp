#include <fmt/format.h>

#include "lowtide/quant/quantizer.h"
#include "tests/golden/golden_file.h"

namespace lowtide {
namespace {

torch::Tensor through(const torch::Tensor& x, RangeGroup group, int bits,
                      const Noise& noise = Noise::none()) {
  return decode(encode(x, measure_range(x, group), bits, noise));
}

// The codes of recorded values, from the same range.
torch::Tensor codes_of(const torch::Tensor& values, const torch::Tensor& x, RangeGroup group, int bits) {
  return encode(values, measure_range(x, group), bits).code;
}

class GoldenQuantizer : public testing::TestWithParam<int> {
 protected:
  const GoldenFile golden_{"quantizer.pt"};

  void expect_same(const std::string& what, RangeGroup group, const Noise& noise = Noise::none()) {
    const int bits = GetParam();
    const std::string key = fmt::format("b{}.{}", bits, what);
    const torch::Tensor& x = golden_[key];
    const torch::Tensor& expected = golden_[key + "_q"];
    const Quantized q = encode(x, measure_range(x, group), bits, noise);
    EXPECT_TRUE(q.code.equal(codes_of(expected, x, group, bits))) << key << ": codes differ";
    // The value is one product and one sum away from the code: two roundings.
    EXPECT_TRUE(close_to(decode(q), expected, 2e-7)) << key;
  }
};

TEST_P(GoldenQuantizer, WeightPerOutputChannel) { expect_same("weight", RangeGroup::kRow); }
TEST_P(GoldenQuantizer, ActivationPerTensor) { expect_same("act", RangeGroup::kTensor); }
TEST_P(GoldenQuantizer, SignedActivationPerTensor) { expect_same("signed_act", RangeGroup::kTensor); }
TEST_P(GoldenQuantizer, GradientWithRecordedNoise) {
  const std::string noise = fmt::format("b{}.noise", GetParam());
  expect_same("grad", RangeGroup::kTensor, Noise::given(golden_[noise]));
}

INSTANTIATE_TEST_SUITE_P(Bits, GoldenQuantizer, testing::Range(2, 9));

TEST(GoldenQuantizerDegenerate, ZerosAndConstants) {
  const GoldenFile golden("quantizer.pt");
  for (const std::string key : {"degenerate.zeros", "degenerate.const"}) {
    for (const RangeGroup group : {RangeGroup::kRow, RangeGroup::kTensor}) {
      EXPECT_TRUE(through(golden[key], group, 4).equal(golden[key + "_q"])) << key;
    }
  }
}

}  // namespace
}  // namespace lowtide
