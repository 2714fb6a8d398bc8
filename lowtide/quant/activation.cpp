#include "lowtide/quant/activation.h"

namespace lowtide {

const Quantized& Activation::encoded(const Range& in_range, DeviceBits bits) const {
  // encode() keeps the minimum that it is given as the codes' offset: the same tensor, the same range.
  const bool same = codes_->code.defined() && codes_->bits.bits == bits.bits &&
                    codes_->bits.on_device == bits.on_device && codes_->offset.is_same(in_range.min);
  if (!same) {
    const at::NoGradGuard no_grad;
    *codes_ = encode(value.detach(), in_range, bits);
  }
  return *codes_;
}

}  // namespace lowtide
