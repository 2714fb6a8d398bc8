#pragma once

#include "lowtide/nn/attention.h"
#include "lowtide/nn/layer_norm.h"

namespace lowtide {

struct TransformerLayerOptions {
  std::int64_t hidden = 0;
  std::int64_t heads = 1;
  std::int64_t feed_forward = 0;
  double dropout = 0;            // of what each half adds
  double attention_dropout = 0;  // of the weights that attention gives
  double norm_epsilon = 1e-5;
  bool norm_first = false;  // normalise what each half reads, not the sum that it leaves
};

// One layer of a Transformer: self-attention, then two linear layers with GELU between them, each with a residual.
class TransformerLayerImpl : public torch::nn::Module {
 public:
  explicit TransformerLayerImpl(const TransformerLayerOptions& options);
  at::Tensor forward(const at::Tensor& x, const at::Tensor& mask);

  bool norm_first() const { return norm_first_; }
  const SelfAttention& attention() const { return attention_; }
  const LayerNorm& attention_norm() const { return attention_norm_; }
  const QuantLinear& expand() const { return expand_; }
  const QuantLinear& contract() const { return contract_; }
  const LayerNorm& output_norm() const { return output_norm_; }

 private:
  at::Tensor feed_forward(const at::Tensor& x);  // before dropout

  bool norm_first_;
  SelfAttention attention_ = nullptr;
  QuantLinear expand_ = nullptr, contract_ = nullptr;
  LayerNorm attention_norm_ = nullptr, output_norm_ = nullptr;
  Dropout dropout_ = nullptr;
};
TORCH_MODULE(TransformerLayer);

}  // namespace lowtide
