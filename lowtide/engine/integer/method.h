#pragma once

#include "lowtide/engine/conv_shape.h"
#include "lowtide/engine/integer/tiles.h"

// The one place that chooses how a product of a convolution is computed, by its shape and the instruction set. The methods
// themselves are declared in conv_methods.h; conv.cpp calls the one that is chosen. All give the same result, to float
// rounding.

namespace lowtide::integer {

enum class OutputMethod {
  kDirect,     // sums of products of bytes, over taps and input channels
  kWinograd,   // 36 products for 144: winograd.h
  kDepthwise,  // every channel by itself
};

enum class InputGradientMethod {
  kFixedPoint,  // weights as integers of 24 bits with one scale for each input channel
  kScaled,      // one output channel at a time; its sum is scaled and added as a float
  kWinograd,
  kDepthwise,
};

enum class WeightGradientMethod {
  kDirect,      // lanes are output channels
  kMatrixUnit,  // lanes are a kernel row's taps and input channels
  kWinograd,
  kDepthwise,
};

OutputMethod output_method(const ConvShape& shape, InstructionSet set);
InputGradientMethod input_gradient_method(const ConvShape& shape, InstructionSet set);
WeightGradientMethod weight_gradient_method(const ConvShape& shape, InstructionSet set);

// Of the direct walk: whether it pays to sum several rows of `cols` outputs as one, with what lies between them.
bool joins_rows(std::int64_t cols, std::int64_t groups, InstructionSet set);

}  // namespace lowtide::integer
