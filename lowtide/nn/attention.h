#pragma once

#include "lowtide/nn/dropout.h"
#include "lowtide/nn/quant_linear.h"
#include "lowtide/nn/quant_product.h"

namespace lowtide {

struct AttentionOptions {
  std::int64_t hidden = 0;
  std::int64_t heads = 1;  // divides `hidden`
  double dropout = 0;      // of the weights that attention gives
};

// Self-attention with several heads (Vaswani et al. 2017, section 3.2): its four linear layers and both of its products
// are quantised, the softmax is fp32.
class SelfAttentionImpl : public torch::nn::Module {
 public:
  explicit SelfAttentionImpl(const AttentionOptions& options);

  // x is batch × length × hidden. The mask is added to the scores: 0 where a position may look, -∞ where not;
  // 1 × length × length, or batch × 1 × length.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& mask);

  const AttentionOptions& options() const { return options_; }
  const QuantLinear& query() const { return query_; }
  const QuantLinear& key() const { return key_; }
  const QuantLinear& value() const { return value_; }
  const QuantProduct& scores() const { return scores_; }
  const QuantProduct& context() const { return context_; }
  const QuantLinear& output() const { return output_; }

 private:
  AttentionOptions options_;
  QuantLinear query_ = nullptr, key_ = nullptr, value_ = nullptr, output_ = nullptr;
  QuantProduct scores_ = nullptr, context_ = nullptr;
  Dropout dropout_ = nullptr;
};
TORCH_MODULE(SelfAttention);

// softmax(factor · scores + mask) and its dropout, of scores of items · heads × length × length and a mask as above; on a GPU with
// the ranges of the rows, and in one pass.
Activation attention_weights(const at::Tensor& scores, const at::Tensor& mask, double factor,
                             const Dropout& dropout, std::int64_t items);

}  // namespace lowtide
