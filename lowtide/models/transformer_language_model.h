#pragma once

#include <torch/nn/modules/embedding.h>

#include <vector>

#include "lowtide/models/language_model.h"
#include "lowtide/nn/transformer_layer.h"

namespace lowtide {

// A Transformer's decoder (Vaswani et al. 2017): an embedding and positions of sines (fp32), layers in which a word sees
// those before it in its window, and a linear layer for the scores. Layers normalise what they read (Baevski and Auli
// 2019), and a last normalisation follows them. Nothing is remembered between windows.
class TransformerLanguageModel final : public LanguageModel {
 public:
  // UserError for heads that do not divide the units.
  explicit TransformerLanguageModel(const LanguageModelOptions& options);
  at::Tensor forward(const at::Tensor& words, NamedTensors& state) override;
  NamedTensors initial_state(std::int64_t) const override { return {}; }

  // What is added to the embeddings of a window's words: length × units. Vaswani et al. 2017, section 3.5.
  static at::Tensor positions(std::int64_t length, std::int64_t units, const at::TensorOptions& options);

  const torch::nn::Embedding& embedding() const { return embedding_; }
  const std::vector<TransformerLayer>& layers() const { return layers_; }
  const LayerNorm& norm() const { return norm_; }
  const QuantLinear& decoder() const { return decoder_; }

 private:
  torch::nn::Embedding embedding_ = nullptr;
  std::vector<TransformerLayer> layers_;
  LayerNorm norm_ = nullptr;
  Dropout dropout_ = nullptr;
  QuantLinear decoder_ = nullptr;
};

}  // namespace lowtide
