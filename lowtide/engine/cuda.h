#pragma once

#include "lowtide/engine/cuda/weight_gradients.h"
#include "lowtide/engine/engine.h"
#include "lowtide/engine/simulated.h"

namespace lowtide {

// Codes of 8 bits and fewer on tensor cores: convolutions, those of trunks fused with what surrounds them, and products of matrices;
// on a GPU from sm_80 on. What it has no kernels for (wider codes, float operands, groups, dilations) it leaves to `simulated`.
class CudaEngine final : public Engine {
 public:
  CudaEngine();  // UserError where the GPU is too old

  std::string name() const override { return "cuda"; }
  std::vector<std::shared_ptr<const PreparedConv>> prepare_convs(const std::vector<ConvWeight>& weights,
                                                                 bool keeps) const override;
  std::unique_ptr<ConvNorm> conv_norm(const ConvNormCall& call) const override;
  bool has_kernels(const ConvWeight& conv, bool in_trunk) const override;
  bool is_capturable() const override { return true; }
  void finish_gradients() const override { weight_gradients_.finish(); }

  at::Tensor conv2d(const Quantized& x, const Quantized& w, const ConvShape& shape) const override;
  at::Tensor conv2d_input_gradient(const Quantized& dy, const Quantized& w,
                                   const ConvShape& shape) const override;
  at::Tensor conv2d_weight_gradient(const Quantized& dy, const Quantized& x,
                                    const ConvShape& shape) const override;
  at::Tensor product(const Quantized& a, const Quantized& b, const ProductShape& shape) const override;
  at::Tensor linear(const Quantized& x, const Quantized& w, const at::Tensor& bias) const override;
  std::unique_ptr<const PreparedOperand> prepare(const Quantized& b, bool transposed) const override;
  at::Tensor multiply(const Quantized& a, const PreparedOperand& b) const override;
  at::Tensor aggregate(const SparseRows& matrix, const Quantized& features) const override;

 private:
  SimulatedEngine simulated_;
  bool multiplies_bytes_ = false;  // as they are, without halves
  mutable cuda::WeightGradients weight_gradients_;
};

}  // namespace lowtide
