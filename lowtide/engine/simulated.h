#pragma once

#include "lowtide/engine/engine.h"

namespace lowtide {

// The reference: codes are decoded to float and multiplied by libtorch, on any device it has.
class SimulatedEngine final : public Engine {
 public:
  std::string name() const override { return "simulated"; }
  at::Tensor conv2d(const Quantized& x, const Quantized& w, const ConvShape& shape) const override;
  at::Tensor conv2d_input_gradient(const Quantized& dy, const Quantized& w,
                                   const ConvShape& shape) const override;
  at::Tensor conv2d_weight_gradient(const Quantized& dy, const Quantized& x,
                                    const ConvShape& shape) const override;
  at::Tensor product(const Quantized& a, const Quantized& b, const ProductShape& shape) const override;
  std::unique_ptr<const PreparedOperand> prepare(const Quantized& b, bool transposed) const override;
  at::Tensor aggregate(const SparseRows& matrix, const Quantized& features) const override;
};

}  // namespace lowtide
