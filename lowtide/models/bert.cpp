#include "lowtide/models/bert.h"

#include <fmt/format.h>

#include <limits>

#include "lowtide/base/torch.h"
#include "lowtide/nn/row_sums.h"

namespace lowtide {

BertClassifier::BertClassifier(const BertConfig& c, std::int64_t labels) : config_(c) {
  const auto embedding = [&](const char* name, std::int64_t rows) {
    return register_module(name, torch::nn::Embedding(rows, c.hidden));
  };
  words_ = embedding("word_embedding", c.vocabulary);
  positions_ = embedding("position_embedding", c.positions);
  types_ = embedding("type_embedding", c.types);
  embedding_norm_ = register_module("embedding_norm", LayerNorm(c.hidden, c.norm_epsilon));
  dropout_ = register_module("dropout", Dropout(c.dropout));
  const TransformerLayerOptions layer{.hidden = c.hidden,
                                      .heads = c.heads,
                                      .feed_forward = c.feed_forward,
                                      .dropout = c.dropout,
                                      .attention_dropout = c.attention_dropout,
                                      .norm_epsilon = c.norm_epsilon};
  for (std::int64_t i = 0; i < c.layers; ++i) {
    layers_.push_back(register_module(fmt::format("layer{}", i), TransformerLayer(layer)));
  }
  pooler_ = register_module("pooler", QuantLinear(QuantLinearOptions{c.hidden, c.hidden}));
  classifier_ = register_module("classifier", QuantLinear(QuantLinearOptions{c.hidden, labels}));
}

at::Tensor BertClassifier::embed(const BertInput& input) {
  const at::Tensor words = torch::embedding(words_->weight, input.words, config_.padding);
  const at::Tensor positions =
      repeat_rows(positions_->weight.narrow(0, 0, input.words.size(1)), input.words.size(0));
  const at::Tensor types = torch::embedding(types_->weight, input.types);
  return dropout_->forward(embedding_norm_->forward(words + types + positions));
}

at::Tensor BertClassifier::forward(const BertInput& input) {
  const at::Tensor absent = input.present.eq(0).unsqueeze(1);
  const at::Tensor mask = torch::zeros(absent.sizes(), words_->weight.options().requires_grad(false))
                              .masked_fill_(absent, -std::numeric_limits<float>::infinity());
  at::Tensor x = embed(input);
  for (TransformerLayer& layer : layers_) x = layer->forward(x, mask);
  const at::Tensor pooled = pooler_->forward(x.select(1, 0).contiguous()).tanh();
  return classifier_->forward(dropout_->forward(pooled));
}

}  // namespace lowtide
