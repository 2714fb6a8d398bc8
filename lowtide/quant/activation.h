#pragma once

#include <ATen/ATen.h>

#include <utility>

#include "lowtide/quant/quantizer.h"

namespace lowtide {

// What flows between layers: a value, and its range where whoever made it knows that, so that nobody has to look again.
struct Activation {
  Activation() = default;
  Activation(at::Tensor tensor) : value(std::move(tensor)) {}  // NOLINT: every tensor is an activation
  Activation(at::Tensor tensor, Range of_all) : value(std::move(tensor)), range(std::move(of_all)) {}
  operator const at::Tensor&() const { return value; }  // NOLINT: and the other way round

  at::Tensor value;
  Range range;  // undefined where nobody measured it
};

// Codes by the range of what they stand for, and that range.
struct MeasuredCodes {
  Quantized codes;
  Range range;
};

// An activation before the layers that read it, such as a block's first convolution and its projection: they measure its range
// once, and encode it once for all that read it at the same bits.
class LayerInput {
 public:
  explicit LayerInput(Activation x) : x_(std::move(x)) {}
  // Whoever made it has encoded it too, by its range.
  LayerInput(Activation x, Quantized codes) : x_(std::move(x)), codes_(std::move(codes)) {}

  const Activation& activation() const { return x_; }
  // By a range that is given, or by its own.
  Quantized encode(const Range& known, DeviceBits bits) const;
  MeasuredCodes encode_measured(DeviceBits bits);

 private:
  const Range& range();

  Activation x_;
  Quantized codes_;  // as they were asked for last
};

}  // namespace lowtide
