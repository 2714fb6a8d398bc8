#include "lowtide/engine/integer/method.h"

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

namespace lowtide::integer {
namespace {

struct Methods {
  OutputMethod output;
  InputGradientMethod input_gradient;
  WeightGradientMethod weight_gradient;

  bool operator==(const Methods&) const = default;
};

std::ostream& operator<<(std::ostream& to, const Methods& of) {
  return to << "output method " << static_cast<int>(of.output) << ", input gradient "
            << static_cast<int>(of.input_gradient) << ", weight gradient "
            << static_cast<int>(of.weight_gradient);
}

Methods methods(const ConvShape& shape, InstructionSet set) {
  return {output_method(shape, set), input_gradient_method(shape, set), weight_gradient_method(shape, set)};
}

struct Case {
  std::string what;
  ConvShape shape;
  Methods with_vectors;
};

using Out = OutputMethod;
using In = InputGradientMethod;
using Weight = WeightGradientMethod;

constexpr Methods kDirect{Out::kDirect, In::kFixedPoint, Weight::kDirect};
constexpr Methods kScaled{Out::kDirect, In::kScaled, Weight::kDirect};
constexpr Methods kTransformed{Out::kWinograd, In::kWinograd, Weight::kWinograd};
constexpr Methods kDepthwise{Out::kDepthwise, In::kDepthwise, Weight::kDepthwise};

// Layers of the models that the engine was measured with, and those just beside a limit.
const std::vector<Case> kCases{
    {"the first layer: three channels", {{128, 3, 32, 32}, {16, 3, 3, 3}, {1, 1}, {1, 1}, 1}, kScaled},
    {"16 channels: weight gradients alone are transformed",
     {{128, 16, 32, 32}, {16, 16, 3, 3}, {1, 1}, {1, 1}, 1},
     {Out::kDirect, In::kScaled, Weight::kWinograd}},
    {"32 channels", {{128, 32, 16, 16}, {32, 32, 3, 3}, {1, 1}, {1, 1}, 1}, kTransformed},
    {"64 channels", {{128, 64, 8, 8}, {64, 64, 3, 3}, {1, 1}, {1, 1}, 1}, kTransformed},
    {"a stride", {{128, 32, 32, 32}, {64, 32, 3, 3}, {2, 2}, {1, 1}, 1}, kDirect},
    {"a stride along one dimension", {{128, 32, 32, 32}, {64, 32, 3, 3}, {1, 2}, {1, 1}, 1}, kDirect},
    {"1×1", {{128, 64, 8, 8}, {128, 64, 1, 1}, {1, 1}, {0, 0}, 1}, kDirect},
    {"1×1 with a stride", {{128, 16, 32, 32}, {32, 16, 1, 1}, {2, 2}, {0, 0}, 1}, kDirect},
    {"5×5", {{128, 64, 8, 8}, {64, 64, 5, 5}, {1, 1}, {2, 2}, 1}, kScaled},
    {"3×2: too few columns for a scaled sum", {{128, 64, 8, 8}, {64, 64, 3, 2}, {1, 1}, {1, 1}, 1}, kDirect},
    {"groups", {{128, 64, 8, 8}, {64, 32, 3, 3}, {1, 1}, {1, 1}, 2}, kScaled},
    {"a padding wider than the transform's", {{128, 64, 8, 8}, {64, 64, 3, 3}, {1, 1}, {3, 3}, 1}, kScaled},
    {"channels that are no multiple of 16", {{128, 24, 8, 8}, {64, 24, 3, 3}, {1, 1}, {1, 1}, 1}, kScaled},
    {"seven images: threads share out whole ones",
     {{7, 64, 56, 56}, {64, 64, 3, 3}, {1, 1}, {1, 1}, 1},
     {Out::kDirect, In::kScaled, Weight::kWinograd}},
    {"eight images", {{8, 64, 56, 56}, {64, 64, 3, 3}, {1, 1}, {1, 1}, 1}, kTransformed},
    {"63 tiles for 64 channels", {{63, 64, 4, 4}, {64, 64, 3, 3}, {1, 1}, {1, 1}, 1}, kScaled},
    {"64 tiles: enough for the weight gradient",
     {{64, 64, 4, 4}, {64, 64, 3, 3}, {1, 1}, {1, 1}, 1},
     {Out::kDirect, In::kScaled, Weight::kWinograd}},
    {"256 tiles: enough for all", {{256, 64, 4, 4}, {64, 64, 3, 3}, {1, 1}, {1, 1}, 1}, kTransformed},
    {"7×7: three quarters of four tiles", {{128, 64, 7, 7}, {64, 64, 3, 3}, {1, 1}, {1, 1}, 1}, kTransformed},
    {"6×6: half of four tiles", {{128, 64, 6, 6}, {64, 64, 3, 3}, {1, 1}, {1, 1}, 1}, kScaled},
    {"depthwise", {{128, 96, 16, 16}, {96, 1, 3, 3}, {1, 1}, {1, 1}, 96}, kDepthwise},
    {"depthwise with a stride", {{128, 96, 16, 16}, {96, 1, 3, 3}, {2, 2}, {1, 1}, 96}, kDepthwise},
    {"two outputs a channel are not depthwise",
     {{128, 96, 16, 16}, {192, 1, 3, 3}, {1, 1}, {1, 1}, 96},
     kScaled},
    {"one channel is not depthwise", {{128, 1, 28, 28}, {1, 1, 3, 3}, {1, 1}, {1, 1}, 1}, kScaled},
};

TEST(IntegerMethod, FollowsFromTheShapeWithoutAMatrixUnit) {
  for (const Case& c : kCases) {
    for (const InstructionSet set :
         {InstructionSet::kGeneric, InstructionSet::kAvx2, InstructionSet::kVnni}) {
      EXPECT_EQ(methods(c.shape, set), c.with_vectors) << c.what << ", " << instruction_set_name(set);
    }
  }
}

TEST(IntegerMethod, IsPlainProductsWithAMatrixUnit) {
  for (const Case& c : kCases) {
    const bool depthwise = c.with_vectors == kDepthwise;
    const Methods expected =
        depthwise ? kDepthwise : Methods{Out::kDirect, In::kFixedPoint, Weight::kMatrixUnit};
    for (const InstructionSet set : {InstructionSet::kGenericMatrix, InstructionSet::kAmx}) {
      EXPECT_EQ(methods(c.shape, set), expected) << c.what << ", " << instruction_set_name(set);
    }
  }
}

}  // namespace
}  // namespace lowtide::integer
