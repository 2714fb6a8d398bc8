#include "lowtide/models/lstm_language_model.h"

#include <fmt/format.h>

#include "lowtide/base/torch.h"

namespace lowtide {

LstmLanguageModel::LstmLanguageModel(const LanguageModelOptions& options) : options_(options) {
  embedding = register_parameter("embedding", torch::zeros({options.words, options.units}));
  for (std::int64_t i = 0; i < options.layers; ++i) {
    dropouts_.push_back(register_module(fmt::format("dropout{}", i), Dropout(options.dropout)));
    layers_.push_back(
        register_module(fmt::format("lstm{}", i), QuantLstm(QuantLstmOptions{options.units, options.units})));
  }
  dropouts_.push_back(register_module(fmt::format("dropout{}", options.layers), Dropout(options.dropout)));
  decoder_ = register_module("decoder", QuantLinear(QuantLinearOptions{options.units, options.words}));
}

at::Tensor LstmLanguageModel::forward(const at::Tensor& words, NamedTensors& state) {
  at::Tensor x = torch::embedding(embedding, words);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    at::Tensor& hidden = state[2 * i].second;
    at::Tensor& cell = state[2 * i + 1].second;
    const LstmOutput output = layers_[i]->forward(dropouts_[i]->forward(x), {hidden, cell});
    x = output.hidden;
    hidden = output.last.hidden;
    cell = output.last.cell;
  }
  // Words as rows of a matrix: the range of the gradient there is that of all of them.
  const at::Tensor rows = dropouts_.back()->forward(x).view({-1, options_.units});
  return decoder_->forward(rows).view({words.size(0), words.size(1), options_.words});
}

NamedTensors LstmLanguageModel::initial_state(std::int64_t batch) const {
  NamedTensors state;
  for (std::int64_t i = 0; i < options_.layers; ++i) {
    for (const char* part : {"hidden", "cell"}) {
      state.emplace_back(fmt::format("lstm{}.{}", i, part),
                         torch::zeros({batch, options_.units}, embedding.options().requires_grad(false)));
    }
  }
  return state;
}

}  // namespace lowtide
