#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <utility>

#include "lowtide/quant/quantizer.h"

namespace lowtide {

// What flows between layers: a value, and its range where whoever made it knows that, so that nobody has to look again.
class Activation {
 public:
  Activation() = default;
  Activation(at::Tensor tensor) : value(std::move(tensor)) {}  // NOLINT: every tensor is an activation
  Activation(at::Tensor tensor, Range of_all) : value(std::move(tensor)), range(std::move(of_all)) {}
  // Whoever made it has encoded it too, by this range.
  Activation(at::Tensor tensor, Range of_all, Quantized codes)
      : value(std::move(tensor)),
        range(std::move(of_all)),
        codes_(std::make_shared<Quantized>(std::move(codes))) {}
  operator const at::Tensor&() const { return value; }  // NOLINT: and the other way round

  // The codes for this range and number of bits. Those asked for last are kept, for all copies of an activation: layers that
  // read the same one, a block's first convolution and its projection, encode it once. Not for two threads at once.
  const Quantized& encoded(const Range& in_range, DeviceBits bits) const;

  at::Tensor value;
  Range range;  // undefined where nobody measured it

 private:
  std::shared_ptr<Quantized> codes_ = std::make_shared<Quantized>();
};

}  // namespace lowtide
