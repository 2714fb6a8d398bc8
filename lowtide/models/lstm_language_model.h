#pragma once

#include <vector>

#include "lowtide/models/language_model.h"
#include "lowtide/nn/dropout.h"
#include "lowtide/nn/quant_linear.h"
#include "lowtide/nn/quant_lstm.h"

namespace lowtide {

// Zaremba et al. 2014: an embedding (fp32), LSTM layers with dropout before, between and after them, and a linear decoder.
class LstmLanguageModel final : public LanguageModel {
 public:
  explicit LstmLanguageModel(const LanguageModelOptions& options);
  at::Tensor forward(const at::Tensor& words, NamedTensors& state) override;
  NamedTensors initial_state(std::int64_t batch) const override;

  const std::vector<QuantLstm>& layers() const { return layers_; }
  const QuantLinear& decoder() const { return decoder_; }

  at::Tensor embedding;

 private:
  LanguageModelOptions options_;
  std::vector<QuantLstm> layers_;
  std::vector<Dropout> dropouts_;  // one before each layer, one after the last
  QuantLinear decoder_ = nullptr;
};

}  // namespace lowtide
