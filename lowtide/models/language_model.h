#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lowtide/nn/named_tensors.h"

namespace lowtide {

// A network from words to the scores of the words that follow.
class LanguageModel : public torch::nn::Module {
 public:
  // Words are time × batch, scores time × batch × words. `state` is what the window before left, and gives way to what
  // this one leaves.
  virtual at::Tensor forward(const at::Tensor& words, NamedTensors& state) = 0;

  // Of the beginning of a text; empty for a network that remembers nothing between windows.
  virtual NamedTensors initial_state(std::int64_t batch) const = 0;

  // Which layers are left in full precision, as rules that a user's rules may overrule.
  virtual std::vector<std::string> default_rules() const { return {}; }
};

struct LanguageModelOptions {
  std::int64_t words = 0;
  std::int64_t units = 0;  // of the embedding and of each layer
  std::int64_t layers = 1;
  double dropout = 0;
  std::int64_t heads = 1;         // transformer: of attention
  std::int64_t feed_forward = 0;  // transformer: units between its two linear layers
};

std::vector<std::string> language_model_names();

// UserError for a name that is none of them.
std::shared_ptr<LanguageModel> make_language_model(const std::string& name,
                                                   const LanguageModelOptions& options);

}  // namespace lowtide
