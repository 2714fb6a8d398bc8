#include "lowtide/quant/activation.h"

namespace lowtide {

const Range& LayerInput::range() {
  if (!x_.range.min.defined()) {
    const at::NoGradGuard no_grad;
    x_.range = measure_range(x_.value, RangeGroup::kTensor);
  }
  return x_.range;
}

const Quantized& LayerInput::codes(DeviceBits bits) {
  const bool same =
      codes_.code.defined() && codes_.bits.bits == bits.bits && codes_.bits.on_device == bits.on_device;
  if (!same) codes_ = codes(bits, range());
  return codes_;
}

Quantized LayerInput::codes(DeviceBits bits, const Range& known) const {
  const at::NoGradGuard no_grad;
  return encode(x_.value.detach(), known, bits);
}

}  // namespace lowtide
