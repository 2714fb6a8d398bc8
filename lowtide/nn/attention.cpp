#include "lowtide/nn/attention.h"

#include <cmath>

#include "lowtide/base/error.h"
#include "lowtide/base/torch.h"

namespace lowtide {
namespace {

// With its range, so that three layers read it but once, and share the codes.
Activation measured(const at::Tensor& x) {
  Activation activation(x);
  const at::NoGradGuard no_grad;
  activation.range = measure_range(x, RangeGroup::kTensor);
  return activation;
}

}  // namespace

SelfAttentionImpl::SelfAttentionImpl(const AttentionOptions& options) : options_(options) {
  LOWTIDE_CHECK(options.hidden % options.heads == 0, "heads of unequal size");
  const auto linear = [&](const char* name) {
    return register_module(
        name, QuantLinear(QuantLinearOptions{options.hidden, options.hidden, ErrorRange::kPosition}));
  };
  query_ = linear("query");
  key_ = linear("key");
  value_ = linear("value");
  scores_ = register_module("scores", QuantProduct());
  dropout_ = register_module("dropout", Dropout(options.dropout));
  context_ = register_module("context", QuantProduct());
  output_ = linear("output");
}

// batch · heads × length × units of a head
at::Tensor SelfAttentionImpl::split_heads(const at::Tensor& x) const {
  const std::int64_t length = x.size(1), units = options_.hidden / options_.heads;
  return x.view({-1, length, options_.heads, units}).transpose(1, 2).reshape({-1, length, units});
}

at::Tensor SelfAttentionImpl::forward(const at::Tensor& x, const at::Tensor& mask) {
  const std::int64_t items = x.size(0), length = x.size(1), heads = options_.heads;
  const Activation shared = measured(x);
  const at::Tensor query = split_heads(query_->forward(shared));
  const at::Tensor key = split_heads(key_->forward(shared));
  const at::Tensor value = split_heads(value_->forward(shared));
  const double factor = 1 / std::sqrt(static_cast<double>(query.size(2)));
  const at::Tensor scores = scores_->forward(query, key.transpose(1, 2), items) * factor;
  const at::Tensor masked = scores.view({items, heads, length, length}) + mask.unsqueeze(1);
  const at::Tensor weights = dropout_->forward(masked.softmax(-1).view({-1, length, length}));
  const at::Tensor context = context_->forward(weights, value, items);
  return output_->forward(
      context.view({items, heads, length, -1}).transpose(1, 2).reshape({items, length, options_.hidden}));
}

}  // namespace lowtide
