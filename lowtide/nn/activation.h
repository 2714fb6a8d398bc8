#pragma once

#include <ATen/ATen.h>

#include <memory>

#include "lowtide/nn/norm_call.h"
#include "lowtide/quant/quantizer.h"

namespace lowtide {

// What flows between layers: a tensor, and what its producer knows of it so that nobody has to look again. Or, where
// a single convolution is to read it, a normalisation still to be carried out.
class Activation {
 public:
  Activation() = default;
  Activation(at::Tensor tensor) : value(std::move(tensor)) {}  // NOLINT: every tensor is an activation
  operator const at::Tensor&() const { return value; }         // NOLINT: and the other way round

  // The codes for this range and number of bits; a second layer that reads the same activation shares the first one's.
  const Quantized& encoded(const Range& in_range, int bits) const;

  at::Tensor value;                       // undefined while a normalisation is pending
  Range range;                            // of the value, undefined where nobody measured it
  c10::intrusive_ptr<ConvCall> producer;  // the convolution whose output this is
  c10::intrusive_ptr<NormCall> pending;
  c10::intrusive_ptr<NormCall> normalisation;  // that made the value
  c10::intrusive_ptr<ConvCall> summed_by;  // the convolution that sums the gradients of the value's readers

 private:
  std::shared_ptr<Quantized> codes_ = std::make_shared<Quantized>();
};

// Carries a normalisation out, added to the residual where there is one (before ReLU).
Activation carry_out(const c10::intrusive_ptr<NormCall>& norm, const Activation& residual = {});

}  // namespace lowtide
