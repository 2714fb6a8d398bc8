#include "lowtide/nn/transformer_layer.h"

#include "lowtide/base/torch.h"
#include "lowtide/nn/pointwise.h"

namespace lowtide {

TransformerLayerImpl::TransformerLayerImpl(const TransformerLayerOptions& o) : norm_first_(o.norm_first) {
  attention_ =
      register_module("attention", SelfAttention(AttentionOptions{o.hidden, o.heads, o.attention_dropout}));
  attention_norm_ = register_module("attention_norm", LayerNorm(o.hidden, o.norm_epsilon));
  expand_ = register_module("expand",
                            QuantLinear(QuantLinearOptions{o.hidden, o.feed_forward, ErrorRange::kPosition}));
  contract_ = register_module(
      "contract", QuantLinear(QuantLinearOptions{o.feed_forward, o.hidden, ErrorRange::kPosition}));
  output_norm_ = register_module("output_norm", LayerNorm(o.hidden, o.norm_epsilon));
  dropout_ = register_module("dropout", Dropout(o.dropout));
}

at::Tensor TransformerLayerImpl::feed_forward(const at::Tensor& x) {
  return contract_->forward(lowtide::gelu(expand_->forward(x)));
}

at::Tensor TransformerLayerImpl::forward(const at::Tensor& x, const at::Tensor& mask) {
  if (norm_first_) {
    const at::Tensor attended = x + dropout_->forward(attention_->forward(attention_norm_->forward(x), mask));
    return attended + dropout_->forward(feed_forward(output_norm_->forward(attended)));
  }
  const at::Tensor attended = attention_norm_->forward(x, attention_->forward(x, mask), dropout_);
  return output_norm_->forward(attended, feed_forward(attended), dropout_);
}

}  // namespace lowtide
