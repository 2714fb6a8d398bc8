#include "lowtide/quant/activation.h"

namespace lowtide {

const Quantized& Activation::encoded(const Range& in_range, int bits) const {
  const bool same = codes_->code.defined() && codes_->bits == bits && codes_->offset.is_same(in_range.min);
  if (!same) {
    const at::NoGradGuard no_grad;
    *codes_ = encode(value.detach(), in_range, bits);
  }
  return *codes_;
}

}  // namespace lowtide
