#include "lowtide/models/transformer_language_model.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "lowtide/base/error.h"
#include "lowtide/base/torch.h"

namespace lowtide {
namespace {

constexpr double kEpsilon = 1e-5;

// -∞ for all words after one's own.
at::Tensor causal_mask(std::int64_t length, const at::TensorOptions& options) {
  return torch::full({1, length, length}, -std::numeric_limits<float>::infinity(), options).triu_(1);
}

}  // namespace

// Sines in the first half of the units, cosines in the second, of wave lengths from 2π to 10000 · 2π.
at::Tensor TransformerLanguageModel::positions(std::int64_t length, std::int64_t units,
                                               const at::TensorOptions& options) {
  const std::int64_t half = (units + 1) / 2;
  const at::Tensor rate =
      torch::exp(torch::arange(half, options) * (-std::log(10000.0) / static_cast<double>(half)));
  const at::Tensor angle = torch::arange(length, options).unsqueeze(1) * rate;
  return torch::cat({angle.sin(), angle.cos()}, 1).narrow(1, 0, units);
}

TransformerLanguageModel::TransformerLanguageModel(const LanguageModelOptions& o) {
  if (o.units % o.heads != 0) {
    throw UserError(fmt::format("heads is {}, hidden {}; expected heads that divide it", o.heads, o.units));
  }
  embedding_ = register_module("embedding", torch::nn::Embedding(o.words, o.units));
  dropout_ = register_module("dropout", Dropout(o.dropout));
  const TransformerLayerOptions layer{.hidden = o.units,
                                      .heads = o.heads,
                                      .feed_forward = o.feed_forward,
                                      .dropout = o.dropout,
                                      .attention_dropout = o.dropout,
                                      .norm_epsilon = kEpsilon,
                                      .norm_first = true};
  for (std::int64_t i = 0; i < o.layers; ++i) {
    layers_.push_back(register_module(fmt::format("layer{}", i), TransformerLayer(layer)));
  }
  norm_ = register_module("norm", LayerNorm(o.units, kEpsilon));
  decoder_ = register_module("decoder", QuantLinear(QuantLinearOptions{o.units, o.words}));
}

at::Tensor TransformerLanguageModel::forward(const at::Tensor& words, NamedTensors& /*state*/) {
  const at::Tensor& table = embedding_->weight;
  const std::int64_t length = words.size(0);
  const auto options = table.options().requires_grad(false);
  const double factor = std::sqrt(static_cast<double>(table.size(1)));  // embeddings begin with 1/sqrt(units)
  const at::Tensor embedded = torch::embedding(table, words.t().contiguous()) * factor;
  at::Tensor x = dropout_->forward(embedded + positions(length, table.size(1), options));
  const at::Tensor mask = causal_mask(length, options);
  for (TransformerLayer& layer : layers_) x = layer->forward(x, mask);
  const at::Tensor rows = norm_->forward(x).transpose(0, 1).reshape({-1, table.size(1)});
  return decoder_->forward(rows).view({length, words.size(1), table.size(0)});
}

}  // namespace lowtide
