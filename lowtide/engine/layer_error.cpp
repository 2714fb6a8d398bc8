#include "lowtide/engine/layer_error.h"

namespace lowtide {

LayerError quantise_error(const at::Tensor& gradient, const ErrorFormat& format, const Range& range) {
  const at::Tensor values = contiguous(gradient);
  const Quantized unquantised{values, {}, {}, 0};
  if (is_float_bits(format.bits)) return {unquantised, unquantised};
  const Range measured = range.min.defined() ? range : measure_range(values, RangeGroup::kTensor);
  const Quantized error = encode(values, measured, format.bits, format.noise);
  return {error, format.bifurcate ? unquantised : error};
}

}  // namespace lowtide
