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

 private:
  torch::nn::Embedding embedding_ = nullptr;
  std::vector<TransformerLayer> layers_;
  LayerNorm norm_ = nullptr;
  Dropout dropout_ = nullptr;
  QuantLinear decoder_ = nullptr;
};

}  // namespace lowtide
