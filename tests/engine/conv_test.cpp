#include <gtest/gtest.h>

#include "lowtide/engine/cpu/image_watcher.h"
#include "lowtide/engine/integer.h"
#include "lowtide/engine/pixels_apart.h"
#include "tests/engine/naive.h"
#include "tests/engine/on_engine_device.h"
#include "tests/testing.h"

namespace lowtide {
namespace {

struct Geometry {
  std::int64_t batch = 1, in = 1, height = 1, width = 1, out = 1;
  std::int64_t kernel = 1, stride = 1, padding = 0, groups = 1;

  ConvShape shape() const {
    return {.input = {batch, in, height, width},
            .weight = {out, in / groups, kernel, kernel},
            .stride = {stride, stride},
            .padding = {padding, padding},
            .groups = groups};
  }
};

std::ostream& operator<<(std::ostream& out, const Geometry& g) {
  return out << g.batch << " x " << g.in << " x " << g.height << " x " << g.width << " to " << g.out
             << " channels, kernel " << g.kernel << ", stride " << g.stride << ", padding " << g.padding
             << ", groups " << g.groups;
}

// Every kernel, stride, padding and grouping; one image, fewer than eight, eight, and more than eight; one
// channel in or out; sizes that the stride does not divide; a kernel as large as the image; pixels that no tap
// leads to, and three times sixteen channels, which a GPU takes in powers of two.
const std::vector<Geometry> kGeometries{
    {.height = 1, .width = 1},
    {.in = 3, .height = 7, .width = 7, .out = 4},
    {.batch = 2, .in = 8, .height = 9, .width = 7, .out = 16, .stride = 2},
    {.batch = 2, .in = 8, .height = 16, .width = 16, .out = 48, .stride = 2},
    {.batch = 8, .in = 16, .height = 5, .width = 5, .out = 8},
    {.batch = 3, .height = 8, .width = 8, .out = 5, .kernel = 3, .padding = 1},
    {.batch = 5, .in = 3, .height = 9, .width = 11, .out = 7, .kernel = 3, .stride = 2, .padding = 1},
    {.batch = 9, .in = 16, .height = 6, .width = 6, .out = 16, .kernel = 3, .padding = 1},
    {.batch = 17, .in = 4, .height = 5, .width = 5, .kernel = 3},
    {.batch = 2, .in = 6, .height = 7, .width = 5, .out = 4, .kernel = 3, .stride = 2, .groups = 2},
    {.batch = 3, .in = 8, .height = 8, .width = 8, .out = 8, .kernel = 3, .padding = 1, .groups = 8},
    {.batch = 2,
     .in = 12,
     .height = 9,
     .width = 9,
     .out = 12,
     .kernel = 3,
     .stride = 2,
     .padding = 1,
     .groups = 12},
    {.batch = 2, .in = 4, .height = 8, .width = 8, .out = 8, .kernel = 3, .padding = 1, .groups = 4},
    {.batch = 4, .in = 2, .height = 9, .width = 9, .out = 3, .kernel = 5, .padding = 3},
    {.batch = 2, .in = 3, .height = 11, .width = 11, .out = 6, .kernel = 5, .stride = 2, .padding = 1},
    {.batch = 2, .in = 6, .height = 9, .width = 9, .out = 6, .kernel = 5, .groups = 6},
    {.batch = 2, .in = 3, .height = 15, .width = 13, .out = 8, .kernel = 7, .stride = 2, .padding = 3},
    {.height = 9, .width = 9, .out = 2, .kernel = 7, .padding = 3},
    {.batch = 10, .in = 3, .height = 7, .width = 7, .out = 4, .kernel = 7},
    {.batch = 2,
     .in = 4,
     .height = 10,
     .width = 10,
     .out = 6,
     .kernel = 3,
     .stride = 2,
     .padding = 3,
     .groups = 2},
    {.batch = 3, .in = 5, .height = 4, .width = 4, .out = 6, .padding = 1},
};

// Bits of the two operands; 0 is float.
const std::vector<std::pair<int, int>> kBits{{8, 8},   {2, 8}, {5, 3}, {12, 6},
                                             {16, 16}, {0, 8}, {4, 0}, {0, 0}};

// Operands whose values lie far from 0, so that an offset that leaks into the padding, or is left out,
// cannot be missed.
struct Operands {
  Quantized x, w, dy;
};

Quantized quantised(const torch::Tensor& values, RangeGroup group, int bits) {
  return encode(values, measure_range(values, group), bits);
}

Operands operands(const ConvShape& s, int x_bits, int w_bits, int dy_bits, bool far_from_zero) {
  const double low = far_from_zero ? 3 : -1;
  const torch::Tensor x = uniform(s.input, low, low + 2, 1);
  const torch::Tensor w = uniform(s.weight, low / 3, low / 3 + 1, 2);
  const torch::Tensor dy =
      uniform({s.input[0], s.weight[0], s.output_height(), s.output_width()}, low / 2, low / 2 + 1, 3);
  return {quantised(x, RangeGroup::kTensor, x_bits), quantised(w, RangeGroup::kRow, w_bits),
          quantised(dy, RangeGroup::kTensor, dy_bits)};
}

class EngineConv : public testing::TestWithParam<std::tuple<std::string, Geometry>> {
 protected:
  void SetUp() override {
    if (!engine_.can_run()) GTEST_SKIP() << "no CUDA device";
  }

  const PlacedEngine engine_{std::get<0>(GetParam())};
  const ConvShape shape_ = std::get<1>(GetParam()).shape();

  // Calls check(operands with the bits for the pair's two operands in both ranges of values).
  template <typename Check>
  void for_all_bits(const Check& check) const {
    for (const auto& [first, second] : kBits) {
      for (const bool far_from_zero : {false, true}) {
        SCOPED_TRACE(testing::Message() << first << " and " << second << " bits, "
                                        << (far_from_zero ? "far from" : "around") << " zero");
        check(first, second, far_from_zero);
      }
    }
  }
};

// A sum of n float32 products is off by about sqrt(n) 2^-24 of its terms' sum, n < 2000 here: 3e-6 at most.
constexpr double kTolerance = 1e-5;

TEST_P(EngineConv, Output) {
  for_all_bits([&](int x_bits, int w_bits, bool far_from_zero) {
    const Operands o = operands(shape_, x_bits, w_bits, 8, far_from_zero);
    const torch::Tensor y = engine_.conv2d(o.x, o.w, shape_);
    EXPECT_EQ(y.scalar_type(), torch::kFloat);
    EXPECT_TRUE(close_to(y, naive::conv2d(o.x, o.w, shape_), kTolerance));
  });
}

TEST_P(EngineConv, InputGradient) {
  for_all_bits([&](int dy_bits, int w_bits, bool far_from_zero) {
    const Operands o = operands(shape_, 8, w_bits, dy_bits, far_from_zero);
    const torch::Tensor dx = engine_.conv2d_input_gradient(o.dy, o.w, shape_);
    EXPECT_EQ(dx.scalar_type(), torch::kFloat);
    EXPECT_TRUE(close_to(dx, naive::conv2d_input_gradient(o.dy, o.w, shape_), kTolerance));
  });
}

TEST_P(EngineConv, WeightGradient) {
  for_all_bits([&](int dy_bits, int x_bits, bool far_from_zero) {
    const Operands o = operands(shape_, x_bits, 8, dy_bits, far_from_zero);
    const torch::Tensor dw = engine_.conv2d_weight_gradient(o.dy, o.x, shape_);
    EXPECT_EQ(dw.scalar_type(), torch::kFloat);
    EXPECT_TRUE(close_to(dw, naive::conv2d_weight_gradient(o.dy, o.x, shape_), kTolerance));
  });
}

// Keeps each image as it was when the engine said that it was complete.
class Keeper final : public ImageWatcher {
 public:
  void begin(const torch::Tensor& result) override {
    result_ = result;
    kept_ = torch::full_like(result, -1);
    told_.assign(static_cast<std::size_t>(result.size(0)), 0);
  }
  void image(std::int64_t index) override {
    kept_[index].copy_(result_[index]);
    ++told_[static_cast<std::size_t>(index)];
  }
  void expect_saw(const torch::Tensor& result) const {
    if (!result_.defined()) return;  // an engine need not tell
    EXPECT_EQ(result.data_ptr(), result_.data_ptr());
    EXPECT_TRUE(same(kept_, result));
    for (const int times : told_) EXPECT_EQ(times, 1);
  }
  bool was_told() const { return result_.defined(); }

 private:
  torch::Tensor result_, kept_;
  std::vector<int> told_;
};

// The convolutions that its own passes are made of.
class IntegerConv : public testing::TestWithParam<Geometry> {
 protected:
  const IntegerEngine engine_;
  const ConvShape shape_ = GetParam().shape();
  const Operands o_ = operands(shape_, 8, 8, 8, false);
};

TEST_P(IntegerConv, AWatcherSeesEachImageOnceAndComplete) {
  Keeper output, gradient;
  output.expect_saw(engine_.conv2d(o_.x, o_.w, shape_, &output));
  gradient.expect_saw(engine_.conv2d_input_gradient(o_.dy, o_.w, shape_, {}, &gradient));
}

TEST_P(IntegerConv, InputGradientIsAddedToAnother) {
  const torch::Tensor alone = engine_.conv2d_input_gradient(o_.dy, o_.w, shape_);
  for (const std::array<std::int64_t, 2> stride : {std::array<std::int64_t, 2>{1, 1}, {2, 2}, {3, 2}}) {
    for (const auto format : {torch::MemoryFormat::ChannelsLast, torch::MemoryFormat::Contiguous}) {
      torch::Tensor expected = alone.clone();
      const torch::Tensor other =
          uniform(pixels_apart(expected, stride).sizes(), -1, 1, 4).contiguous(format);
      pixels_apart(expected, stride).add_(other);
      Keeper keeper;
      const torch::Tensor sum =
          engine_.conv2d_input_gradient(o_.dy, o_.w, shape_, {other.clone(), stride}, &keeper);
      EXPECT_TRUE(close_to(sum, expected, 1e-6));
      keeper.expect_saw(sum);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Geometries, IntegerConv, testing::ValuesIn(kGeometries));

TEST(IntegerConvWatched, TellsAWatcher) {
  const ConvShape shape =
      Geometry{.batch = 8, .in = 16, .height = 8, .width = 8, .out = 16, .kernel = 3, .padding = 1}.shape();
  const Operands o = operands(shape, 8, 8, 8, false);
  Keeper output, gradient;
  IntegerEngine().conv2d(o.x, o.w, shape, &output);
  IntegerEngine().conv2d_input_gradient(o.dy, o.w, shape, {}, &gradient);
  EXPECT_TRUE(output.was_told() && gradient.was_told());
}

// Height and width each with their own kernel, stride, padding and dilation, as other people's networks have them.
const std::vector<ConvShape> kUnequalShapes{
    {.input = {3, 4, 9, 12}, .weight = {6, 4, 1, 7}, .stride = {1, 1}, .padding = {0, 3}},
    {.input = {3, 4, 9, 12}, .weight = {6, 4, 7, 1}, .stride = {2, 1}, .padding = {3, 0}},
    {.input = {9, 8, 10, 7}, .weight = {8, 1, 3, 5}, .stride = {1, 2}, .padding = {1, 2}, .groups = 8},
    {.input = {2, 6, 8, 11}, .weight = {4, 3, 3, 2}, .stride = {3, 1}, .padding = {0, 1}, .groups = 2},
    {.input = {2, 5, 9, 9}, .weight = {4, 5, 3, 3}, .padding = {2, 2}, .dilation = {2, 2}},
    {.input = {9, 4, 11, 9}, .weight = {4, 1, 3, 3}, .padding = {3, 1}, .groups = 4, .dilation = {3, 1}},
};

class EngineUnequalConv : public testing::TestWithParam<std::string> {};

TEST_P(EngineUnequalConv, AllThreeProducts) {
  const PlacedEngine engine(GetParam());
  if (!engine.can_run()) GTEST_SKIP() << "no CUDA device";
  for (const ConvShape& shape : kUnequalShapes) {
    for (const int bits : {8, 3, 12, 0}) {
      SCOPED_TRACE(testing::Message()
                   << shape.weight[2] << " x " << shape.weight[3] << ", " << bits << " bits");
      const Operands o = operands(shape, bits, bits, 8, /*far_from_zero=*/true);
      EXPECT_TRUE(close_to(engine.conv2d(o.x, o.w, shape), naive::conv2d(o.x, o.w, shape), kTolerance));
      EXPECT_TRUE(close_to(engine.conv2d_input_gradient(o.dy, o.w, shape),
                           naive::conv2d_input_gradient(o.dy, o.w, shape), kTolerance));
      EXPECT_TRUE(close_to(engine.conv2d_weight_gradient(o.dy, o.x, shape),
                           naive::conv2d_weight_gradient(o.dy, o.x, shape), kTolerance));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, EngineUnequalConv, testing::ValuesIn(placed_engine_names()));

INSTANTIATE_TEST_SUITE_P(Engines, EngineConv,
                         testing::Combine(testing::ValuesIn(placed_engine_names()),
                                          testing::ValuesIn(kGeometries)));

// Large enough that every library would share the work between threads.
const std::vector<Geometry> kLargeGeometries{
    {.batch = 19, .in = 16, .height = 16, .width = 16, .out = 32, .kernel = 3, .padding = 1},
    {.batch = 9, .in = 3, .height = 33, .width = 31, .out = 64, .kernel = 7, .stride = 2, .padding = 3},
    {.batch = 12, .in = 32, .height = 16, .width = 16, .out = 32, .kernel = 3, .padding = 1, .groups = 32},
    {.batch = 2, .in = 64, .height = 28, .width = 28, .out = 128},
    {.in = 16, .height = 32, .width = 32, .out = 16, .kernel = 3, .padding = 1},
    {.batch = 128, .in = 64, .height = 8, .width = 8, .out = 64, .kernel = 3, .padding = 1},
};

class EngineConvThreads : public EngineConv {};

TEST_P(EngineConvThreads, TheirNumberDoesNotMatter) {
  for (const auto& [first, second] : {std::pair{8, 8}, std::pair{4, 4}, std::pair{0, 0}, std::pair{12, 0}}) {
    SCOPED_TRACE(testing::Message() << first << " and " << second << " bits");
    const Operands o = operands(shape_, first, second, first, false);
    expect_independent_of_threads([&] { return engine_.conv2d(o.x, o.w, shape_); });
    expect_independent_of_threads([&] { return engine_.conv2d_input_gradient(o.dy, o.w, shape_); });
    expect_independent_of_threads([&] { return engine_.conv2d_weight_gradient(o.dy, o.x, shape_); });
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, EngineConvThreads,
                         testing::Combine(testing::ValuesIn(placed_engine_names()),
                                          testing::ValuesIn(kLargeGeometries)));

TEST(ConvShape, SizesAndMacs) {
  const ConvShape shape = Geometry{.batch = 2,
                                   .in = 6,
                                   .height = 15,
                                   .width = 13,
                                   .out = 8,
                                   .kernel = 3,
                                   .stride = 2,
                                   .padding = 1,
                                   .groups = 2}
                              .shape();
  EXPECT_EQ(shape.output_height(), 8);
  EXPECT_EQ(shape.output_width(), 7);
  EXPECT_EQ(shape.macs(), 8 * 7 * 8 * 3 * 3 * 3);  // positions, output channels, 6 / 2 channels, 3 × 3
}

}  // namespace
}  // namespace lowtide
