// What only the integer engine promises; what all engines do is in conv_test.cpp and product_test.cpp.
#include "lowtide/engine/integer.h"

#include <gtest/gtest.h>

#include "lowtide/base/error.h"
#include "lowtide/engine/integer/affine.h"
#include "lowtide/engine/simulated.h"
#include "tests/io/scratch.h"
#include "tests/testing.h"

namespace lowtide {
namespace {

using integer::InstructionSet;

// Sizes that leave every kind of remainder: of vectors, of quads, of columns, of streams.
const std::vector<ConvShape> kShapes{
    {{3, 16, 9, 11}, {16, 16, 3, 3}, {1, 1}, {1, 1}, 1}, {{2, 3, 8, 7}, {33, 3, 3, 3}, {1, 1}, {1, 1}, 1},
    {{2, 24, 7, 7}, {72, 24, 1, 1}, {1, 1}, {0, 0}, 1},  {{2, 64, 5, 6}, {48, 64, 3, 3}, {2, 2}, {1, 1}, 1},
    {{1, 20, 10, 10}, {5, 20, 5, 5}, {1, 1}, {2, 2}, 1}, {{2, 12, 6, 6}, {24, 6, 3, 3}, {1, 1}, {1, 1}, 2},
    {{2, 19, 6, 9}, {19, 1, 3, 3}, {2, 2}, {1, 1}, 19},
};

Quantized quantised(const torch::Tensor& values, RangeGroup group, int bits) {
  return encode(values, measure_range(values, group), bits);
}

struct Operands {
  Quantized x, w, dy;
};

Operands operands(const ConvShape& s, int bits) {
  return {quantised(normal(s.input, 1), RangeGroup::kTensor, bits),
          quantised(normal(s.weight, 2), RangeGroup::kRow, bits),
          quantised(normal({s.input[0], s.weight[0], s.output_height(), s.output_width()}, 3),
                    RangeGroup::kTensor, bits)};
}

class EachInstructionSet : public testing::TestWithParam<InstructionSet> {
 protected:
  const IntegerEngine engine_{GetParam()};
  const IntegerEngine generic_{InstructionSet::kGeneric};
};

TEST_P(EachInstructionSet, GivesWhatPlainLoopsGive) {
  for (const ConvShape& shape : kShapes) {
    for (const int bits : {8, 3}) {
      SCOPED_TRACE(testing::Message() << torch::IntArrayRef(shape.input) << " to "
                                      << torch::IntArrayRef(shape.weight) << ", " << bits << " bits");
      const Operands o = operands(shape, bits);
      EXPECT_TRUE(same(engine_.conv2d(o.x, o.w, shape), generic_.conv2d(o.x, o.w, shape)));
      EXPECT_TRUE(same(engine_.conv2d_weight_gradient(o.dy, o.x, shape),
                       generic_.conv2d_weight_gradient(o.dy, o.x, shape)));
      // Channels are scaled and added as floats here, with or without a fused multiply-add: up to 72 additions, a
      // rounding of 6e-8 of the sum each.
      EXPECT_TRUE(close_to(engine_.conv2d_input_gradient(o.dy, o.w, shape),
                           generic_.conv2d_input_gradient(o.dy, o.w, shape), 4e-6));
    }
  }
}

TEST_P(EachInstructionSet, MultipliesMatricesAsPlainLoopsDo) {
  for (const auto& [rows, inner, columns] : {std::tuple{1, 1, 1}, {7, 5, 3}, {33, 70, 18}, {64, 129, 65}}) {
    const Quantized a = quantised(normal({rows, inner}, 1), RangeGroup::kTensor, 8);
    for (const RangeGroup group : {RangeGroup::kTensor, RangeGroup::kRow}) {
      const Quantized b = quantised(normal({inner, columns}, 2), group, 8);
      EXPECT_TRUE(same(engine_.product(a, b, {}), generic_.product(a, b, {}))) << rows << " x " << inner;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Machine, EachInstructionSet, testing::ValuesIn(integer::instruction_sets()),
                         [](const auto& instance) {
                           std::string name = integer::instruction_set_name(instance.param);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(IntegerEngine, LongSumsOfExtremeCodesDoNotOverflow) {
  // All codes at their ends: the largest sums there can be, at and beyond the bound.
  for (const std::int64_t terms :
       {integer::kMostTerms - 1, integer::kMostTerms, 3 * integer::kMostTerms + 5}) {
    torch::Tensor a = torch::full({2, terms}, -1.0f), b = torch::full({terms, 2}, 1.0f);
    a[1].fill_(1);
    b.index_put_({torch::indexing::Slice(), 1}, -1);
    const Quantized qa = quantised(a, RangeGroup::kTensor, 8), qb = quantised(b, RangeGroup::kTensor, 8);
    const torch::Tensor y = IntegerEngine().product(qa, qb, {});
    const auto n = static_cast<float>(terms);
    EXPECT_TRUE(close_to(y, torch::tensor({{-n, n}, {n, -n}}), 1e-6)) << terms;
  }
}

TEST(IntegerEngine, AWeightGradientOverManyPixelsDoesNotOverflow) {
  // 200 x 200 pixels in one image: more than one stretch of int32 sums.
  const ConvShape shape{{1, 1, 200, 200}, {1, 1, 1, 1}, {1, 1}, {0, 0}, 1};
  torch::Tensor x = torch::ones({1, 1, 200, 200}), dy = torch::ones({1, 1, 200, 200});
  x[0][0][0][0] = 0;
  dy[0][0][0][0] = 0;
  const torch::Tensor dw = IntegerEngine().conv2d_weight_gradient(
      quantised(dy, RangeGroup::kTensor, 8), quantised(x, RangeGroup::kTensor, 8), shape);
  EXPECT_FLOAT_EQ(dw.item<float>(), 200 * 200 - 1);
}

TEST(IntegerEngine, ASingleValueHasARangeOfNothing) {
  for (const float value : {0.0f, 2.5f, -3.0f}) {
    const ConvShape shape{{1, 2, 4, 4}, {3, 2, 3, 3}, {1, 1}, {1, 1}, 1};
    const Quantized x = quantised(torch::full(shape.input, value), RangeGroup::kTensor, 8);
    const Quantized w = quantised(torch::full(shape.weight, 0.5f), RangeGroup::kRow, 8);
    EXPECT_TRUE(torch::allclose(IntegerEngine().conv2d(x, w, shape), SimulatedEngine().conv2d(x, w, shape)));
  }
}

TEST(IntegerEngine, NotFiniteRangesStayVisible) {
  const ConvShape shape{{1, 16, 4, 4}, {16, 16, 3, 3}, {1, 1}, {1, 1}, 1};
  torch::Tensor values = normal(shape.input, 1);
  values[0][3][2][1] = std::numeric_limits<float>::quiet_NaN();
  const Quantized bad = quantised(values, RangeGroup::kTensor, 8);
  const Quantized w = quantised(normal(shape.weight, 2), RangeGroup::kRow, 8);
  const IntegerEngine engine;
  EXPECT_TRUE(torch::isnan(engine.conv2d(bad, w, shape)).all().item<bool>());
  EXPECT_TRUE(torch::isnan(engine.conv2d_input_gradient(bad, w, shape)).all().item<bool>());
  EXPECT_TRUE(torch::isnan(engine.conv2d_weight_gradient(bad, bad, shape)).all().item<bool>());
}

TEST(ChooseEngine, AutoIsTheFastestThatTheDeviceHas) {
  const bool vnni = integer::instruction_sets().front() == InstructionSet::kVnni;
  EXPECT_EQ(choose_engine("auto", "cpu"), vnni ? "integer" : "simulated");
  EXPECT_EQ(choose_engine("auto", "cuda"), "simulated");
  EXPECT_EQ(choose_engine("simulated", "cpu"), "simulated");
  EXPECT_EQ(choose_engine("integer", "cpu"), "integer");
  EXPECT_TRUE(contains(user_error([] { choose_engine("integer", "cuda"); }), "runs on the CPU"));
}

}  // namespace
}  // namespace lowtide
