#pragma once

#include <torch/nn/modules/embedding.h>

#include <vector>

#include "lowtide/models/bert_config.h"
#include "lowtide/nn/transformer_layer.h"

namespace lowtide {

// Sentence pairs, padded to one length: batch × length each.
struct BertInput {
  at::Tensor words, types;
  at::Tensor present;  // 1 where there is a piece, 0 for padding
};

// BERT (Devlin et al. 2019) with a linear classifier of its first position. All linear layers and both products of
// attention are quantised, pooler and classifier too; embeddings and normalisations are fp32.
class BertClassifier final : public torch::nn::Module {
 public:
  BertClassifier(const BertConfig& config, std::int64_t labels);
  at::Tensor forward(const BertInput& input);

  const BertConfig& config() const { return config_; }
  const torch::nn::Embedding& words() const { return words_; }
  const torch::nn::Embedding& positions() const { return positions_; }
  const torch::nn::Embedding& types() const { return types_; }
  const LayerNorm& embedding_norm() const { return embedding_norm_; }
  const std::vector<TransformerLayer>& layers() const { return layers_; }
  const QuantLinear& pooler() const { return pooler_; }
  const QuantLinear& classifier() const { return classifier_; }

 private:
  at::Tensor embed(const BertInput& input);

  BertConfig config_;
  torch::nn::Embedding words_ = nullptr, positions_ = nullptr, types_ = nullptr;
  LayerNorm embedding_norm_ = nullptr;
  std::vector<TransformerLayer> layers_;
  QuantLinear pooler_ = nullptr, classifier_ = nullptr;
  Dropout dropout_ = nullptr;
};

}  // namespace lowtide
