#include "lowtide/quant/activation.h"

namespace lowtide {

const Range& LayerInput::range() {
  if (!x_.range.min.defined()) {
    const at::NoGradGuard no_grad;
    x_.range = measure_range(x_.value, RangeGroup::kTensor);
  }
  return x_.range;
}

Quantized LayerInput::encode(const Range& known, DeviceBits bits) const {
  const at::NoGradGuard no_grad;
  return lowtide::encode(x_.value.detach(), known, bits);
}

MeasuredCodes LayerInput::encode_measured(DeviceBits bits) {
  const bool same =
      codes_.code.defined() && codes_.bits.bits == bits.bits && codes_.bits.on_device == bits.on_device;
  if (!same) codes_ = encode(range(), bits);
  return {codes_, range()};
}

}  // namespace lowtide
