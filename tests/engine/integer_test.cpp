// What only the integer engine promises; what all engines do is in conv_test.cpp and product_test.cpp.
#include "lowtide/engine/integer.h"

#include <gtest/gtest.h>

#include "lowtide/base/error.h"
#include "lowtide/engine/cpu/image_watcher.h"
#include "lowtide/engine/integer/affine.h"
#include "lowtide/engine/integer/method.h"
#include "lowtide/engine/pixels_apart.h"
#include "lowtide/engine/simulated.h"
#include "tests/io/scratch.h"
#include "tests/testing.h"

namespace lowtide {
namespace {

using integer::InstructionSet;

// Sizes that leave every kind of remainder: of vectors, of quads, of columns, of streams, of tiles; many and few images.
const std::vector<ConvShape> kShapes{
    {{9, 64, 40, 40}, {16, 64, 1, 1}, {2, 2}, {0, 0}, 1},  // first: memory that a thread keeps is no larger than it asks for
    {{3, 16, 9, 11}, {16, 16, 3, 3}, {1, 1}, {1, 1}, 1},  {{2, 3, 8, 7}, {33, 3, 3, 3}, {1, 1}, {1, 1}, 1},
    {{2, 24, 7, 7}, {72, 24, 1, 1}, {1, 1}, {0, 0}, 1},   {{2, 64, 5, 6}, {48, 64, 3, 3}, {2, 2}, {1, 1}, 1},
    {{1, 20, 10, 10}, {5, 20, 5, 5}, {1, 1}, {2, 2}, 1},  {{2, 12, 6, 6}, {24, 6, 3, 3}, {1, 1}, {1, 1}, 2},
    {{2, 19, 6, 9}, {19, 1, 3, 3}, {2, 2}, {1, 1}, 19},   {{9, 72, 4, 37}, {32, 72, 3, 3}, {1, 1}, {1, 1}, 1},
    {{1, 40, 70, 20}, {24, 40, 3, 5}, {3, 2}, {1, 2}, 1},
};

// Those that are transformed (winograd.h), with edges of every width, tiles that are not full, and an odd number of tiles.
const std::vector<ConvShape> kTransformedShapes{
    {{65, 64, 8, 7}, {64, 64, 3, 3}, {1, 1}, {1, 1}, 1},
    {{43, 64, 13, 6}, {64, 64, 3, 3}, {1, 1}, {0, 2}, 1},
    {{128, 64, 8, 8}, {128, 64, 3, 3}, {1, 1}, {1, 1}, 1},
    {{65, 32, 7, 8}, {64, 32, 3, 3}, {1, 1}, {1, 1}, 1},
    {{65, 16, 4, 4}, {16, 16, 3, 3}, {1, 1}, {1, 1}, 1},
};

// Where there is no matrix unit.
bool transforms_output(const ConvShape& shape) {
  return integer::output_method(shape, InstructionSet::kVnni) == integer::OutputMethod::kWinograd;
}
bool transforms_weight_gradient(const ConvShape& shape) {
  return integer::weight_gradient_method(shape, InstructionSet::kVnni) ==
         integer::WeightGradientMethod::kWinograd;
}

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

Quantized image_of(Quantized batch, std::int64_t index) {
  batch.code = batch.code.narrow(0, index, 1);
  return batch;
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

TEST_P(EachInstructionSet, TransformsExactly) {
  for (const ConvShape& shape : kTransformedShapes) {
    ASSERT_TRUE(transforms_weight_gradient(shape));
    ASSERT_EQ(transforms_output(shape), shape.weight[1] >= 32);
    ASSERT_EQ(integer::input_gradient_method(shape, InstructionSet::kVnni) ==
                  integer::InputGradientMethod::kWinograd,
              shape.weight[1] >= 32);
    for (const int bits : {8, 3}) {
      SCOPED_TRACE(testing::Message() << torch::IntArrayRef(shape.input) << " to "
                                      << torch::IntArrayRef(shape.weight) << ", " << bits << " bits");
      const Operands o = operands(shape, bits);
      // Image by image there are too few tiles, and the same sums are taken directly.
      std::vector<torch::Tensor> outputs;
      torch::Tensor weight_gradient = torch::zeros(shape.weight, torch::kDouble);
      ConvShape one = shape;
      one.input[0] = 1;
      ASSERT_FALSE(transforms_weight_gradient(one));
      for (std::int64_t i = 0; i < shape.input[0]; ++i) {
        const Quantized x = image_of(o.x, i), dy = image_of(o.dy, i);
        outputs.push_back(engine_.conv2d(x, o.w, one));
        weight_gradient += engine_.conv2d_weight_gradient(dy, x, one);
      }
      EXPECT_TRUE(same(engine_.conv2d(o.x, o.w, shape), torch::cat(outputs)));
      // Weights are rounded to a step of which the largest has 245,000 or more: by 1.2e-6 of it, evenly spread, when
      // it is itself some 3.5 deviations; so a sum is off by 2.4e-6 of its own deviation, and the farthest of a hundred
      // thousand by 4.5 times that, where the largest sum is 4.5 deviations.
      const torch::Tensor exact = torch::conv_transpose2d(
          decode(o.dy).to(torch::kDouble), decode(o.w).to(torch::kDouble), {}, {1, 1}, shape.padding);
      EXPECT_TRUE(close_to(engine_.conv2d_input_gradient(o.dy, o.w, shape), exact, 4e-6));
      EXPECT_TRUE(close_to(engine_.conv2d_weight_gradient(o.dy, o.x, shape), weight_gradient, 1e-6));
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

// Those of the machine, and what a matrix unit does in plain loops, whether or not it has one.
std::vector<InstructionSet> all_instruction_sets() {
  std::vector<InstructionSet> sets = integer::instruction_sets();
  sets.push_back(InstructionSet::kGenericMatrix);
  return sets;
}

INSTANTIATE_TEST_SUITE_P(Machine, EachInstructionSet, testing::ValuesIn(all_instruction_sets()),
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

TEST(IntegerEngine, TransformedSumsOfExtremeCodesAreExact) {
  // All codes but one at the end of their range, and zero at the other end: the largest sums there can be.
  const ConvShape shape{{128, 128, 8, 8}, {128, 128, 3, 3}, {1, 1}, {1, 1}, 1};
  ASSERT_TRUE(transforms_output(shape));
  for (const float sign : {1.0f, -1.0f}) {
    torch::Tensor x = torch::ones(shape.input), w = torch::full(shape.weight, sign);
    x[5][6][2][1] = 0;
    w.select(1, 7).select(1, 1).select(1, 1).zero_();
    const Quantized qx = quantised(x, RangeGroup::kTensor, 8), qw = quantised(w, RangeGroup::kRow, 8);
    const IntegerEngine integer;
    const SimulatedEngine simulated;
    EXPECT_TRUE(close_to(integer.conv2d(qx, qw, shape), simulated.conv2d(qx, qw, shape), 1e-6));
    EXPECT_TRUE(close_to(integer.conv2d_input_gradient(qx, qw, shape),
                         simulated.conv2d_input_gradient(qx, qw, shape), 5e-6));
    EXPECT_TRUE(close_to(integer.conv2d_weight_gradient(qx, qx, shape),
                         simulated.conv2d_weight_gradient(qx, qx, shape), 1e-6));
  }
}

TEST(IntegerEngine, ATransformedWeightGradientOverManyTilesDoesNotOverflow) {
  // 66 pieces of the largest sums for one thread: 32 bits hold 64.
  const ConvShape shape{{66, 16, 32, 32}, {16, 16, 3, 3}, {1, 1}, {1, 1}, 1};
  ASSERT_TRUE(transforms_weight_gradient(shape));
  torch::Tensor values = torch::ones(shape.input);
  values[0][0][0][0] = 0;
  const Quantized q = quantised(values, RangeGroup::kTensor, 8);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const torch::Tensor dw = IntegerEngine().conv2d_weight_gradient(q, q, shape);
  at::set_num_threads(threads);
  EXPECT_TRUE(close_to(dw, SimulatedEngine().conv2d_weight_gradient(q, q, shape), 1e-6));
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
  for (const ConvShape& shape :
       {ConvShape{{1, 2, 4, 4}, {3, 2, 3, 3}, {1, 1}, {1, 1}, 1}, kTransformedShapes[0]}) {
    for (const float value : {0.0f, 2.5f, -3.0f, 1e-35f}) {
      const Quantized x = quantised(torch::full(shape.input, 0.5f), RangeGroup::kTensor, 8);
      const Quantized constant = quantised(torch::full(shape.input, value), RangeGroup::kTensor, 8);
      const Quantized w = quantised(torch::full(shape.weight, value), RangeGroup::kRow, 8);
      const Quantized dy = quantised(
          torch::full({shape.input[0], shape.weight[0], shape.output_height(), shape.output_width()}, 0.5f),
          RangeGroup::kTensor, 8);
      const IntegerEngine integer;
      const SimulatedEngine simulated;
      EXPECT_TRUE(torch::allclose(integer.conv2d(x, w, shape), simulated.conv2d(x, w, shape)));
      EXPECT_TRUE(torch::allclose(integer.conv2d_input_gradient(dy, w, shape),
                                  simulated.conv2d_input_gradient(dy, w, shape)));
      EXPECT_TRUE(torch::allclose(integer.conv2d_weight_gradient(dy, constant, shape),
                                  simulated.conv2d_weight_gradient(dy, constant, shape)));
    }
  }
}

// What it was told of each image, at the time.
class Recorder final : public ImageWatcher {
 public:
  void begin(const at::Tensor& result) override {
    result_ = result;
    images.resize(static_cast<std::size_t>(result.size(0)));
  }
  void image(std::int64_t index) override {
    torch::Tensor& image = images[static_cast<std::size_t>(index)];
    EXPECT_FALSE(image.defined()) << "told twice of " << index;
    image = result_[index].clone();
  }

  std::vector<torch::Tensor> images;

 private:
  torch::Tensor result_;
};

TEST(IntegerEngine, AWatcherIsToldOfEveryImageOnceWhenItIsComplete) {
  const IntegerEngine engine;
  const ConvShape direct{{9, 16, 8, 8}, {16, 16, 3, 3}, {1, 1}, {1, 1}, 1};
  for (const ConvShape& shape : {direct, kTransformedShapes[0], kTransformedShapes[1]}) {
    const Operands o = operands(shape, 8);
    const torch::Tensor addend = normal(shape.input, 4).contiguous(torch::MemoryFormat::ChannelsLast);
    Recorder outputs, gradients, sums;
    const torch::Tensor y = engine.conv2d(o.x, o.w, shape, &outputs);
    const torch::Tensor dx = engine.conv2d_input_gradient(o.dy, o.w, shape, {}, &gradients);
    const torch::Tensor sum = engine.conv2d_input_gradient(o.dy, o.w, shape, {addend.clone()}, &sums);
    EXPECT_TRUE(same(torch::stack(outputs.images), y));
    EXPECT_TRUE(same(torch::stack(gradients.images), dx));
    EXPECT_TRUE(same(torch::stack(sums.images), sum));
    EXPECT_TRUE(close_to(sum, dx + addend, 1e-6));
  }
}

// As a 1×1 convolution in the same steps hands its gradient over.
TEST_P(EachInstructionSet, AddsToPixelsAStrideApart) {
  const std::vector<ConvShape> shapes{{{2, 18, 9, 6}, {20, 18, 3, 3}, {2, 2}, {1, 1}, 1},
                                      {{2, 16, 7, 8}, {16, 16, 3, 3}, {2, 3}, {0, 1}, 1},
                                      {{2, 12, 6, 6}, {24, 6, 3, 3}, {2, 2}, {1, 1}, 2},
                                      {{2, 19, 6, 9}, {19, 1, 3, 3}, {2, 2}, {1, 1}, 19}};
  for (const ConvShape& shape : shapes) {
    SCOPED_TRACE(testing::Message() << torch::IntArrayRef(shape.input));
    const Operands o = operands(shape, 8);
    const torch::Tensor dx = engine_.conv2d_input_gradient(o.dy, o.w, shape);
    const torch::Tensor pixels = normal(pixels_apart(dx, shape.stride).sizes(), 4);
    torch::Tensor expected = dx.clone();
    pixels_apart(expected, shape.stride).add_(pixels);
    for (const auto format : {torch::MemoryFormat::ChannelsLast, torch::MemoryFormat::Contiguous}) {
      const torch::Tensor addend = pixels.contiguous(format);
      const OtherGradient other{addend, shape.stride};
      EXPECT_TRUE(close_to(engine_.conv2d_input_gradient(o.dy, o.w, shape, other, nullptr), expected, 1e-6));
      EXPECT_TRUE(same(addend, pixels)) << "only what is like the result may be written over";
    }
  }
}

TEST(IntegerEngine, NotFiniteRangesStayVisible) {
  for (const std::int64_t channels : {16, 32}) {  // directly, and transformed
    const ConvShape shape{{32, channels, 8, 8}, {channels, channels, 3, 3}, {1, 1}, {1, 1}, 1};
    torch::Tensor values = normal(shape.input, 1), weights = normal(shape.weight, 2);
    const Quantized good = quantised(values, RangeGroup::kTensor, 8);
    const Quantized w = quantised(weights, RangeGroup::kRow, 8);
    values[0][3][2][1] = std::numeric_limits<float>::quiet_NaN();
    weights[4][3][2][1] = std::numeric_limits<float>::quiet_NaN();
    const Quantized bad = quantised(values, RangeGroup::kTensor, 8);
    const Quantized bad_w = quantised(weights, RangeGroup::kRow, 8);
    const IntegerEngine engine;
    const auto all_nan = [](const torch::Tensor& t) { return torch::isnan(t).all().item<bool>(); };
    EXPECT_TRUE(all_nan(engine.conv2d(bad, w, shape)));
    EXPECT_TRUE(all_nan(engine.conv2d(good, bad_w, shape).select(1, 4)));
    EXPECT_TRUE(all_nan(engine.conv2d_input_gradient(bad, w, shape)));
    EXPECT_TRUE(all_nan(engine.conv2d_input_gradient(good, bad_w, shape)));
    EXPECT_TRUE(all_nan(engine.conv2d_weight_gradient(bad, bad, shape)));
  }
}

TEST(ChooseEngine, AutoIsTheFastestThatTheDeviceHas) {
  const bool fast = integer::instruction_sets().front() >= InstructionSet::kVnni;
  EXPECT_EQ(choose_engine("auto", "cpu"), fast ? "integer" : "simulated");
  EXPECT_EQ(choose_engine("auto", "cuda"), "simulated");
  EXPECT_EQ(choose_engine("simulated", "cpu"), "simulated");
  EXPECT_EQ(choose_engine("integer", "cpu"), "integer");
  EXPECT_TRUE(contains(user_error([] { choose_engine("integer", "cuda"); }), "runs on the CPU"));
}

}  // namespace
}  // namespace lowtide
