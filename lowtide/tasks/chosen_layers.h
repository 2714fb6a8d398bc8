#pragma once

#include <cstdint>
#include <vector>

#include "lowtide/base/torch.h"
#include "lowtide/cost/ledger.h"
#include "lowtide/engine/observed.h"
#include "lowtide/nn/quant_layer.h"
#include "lowtide/schedule/schedule.h"

// What layers multiply by, and for which of them a schedule with bits for each chooses.

namespace lowtide {

// Nothing for a product of two activations.
using LayerWeights = std::vector<torch::Tensor>;
LayerWeights weights_of(QuantLayer& layer);
WeightLayout layout_of(const QuantLayer& layer);

struct LayerChoice {
  std::uint32_t id = 0;
  bool is_chosen = false;
};

// All of the ledger's layers, in its order. Of one with a rule of its own the weights are none.
std::vector<LayerChoice> layer_choices(torch::nn::Module& model, const std::vector<Ledger::Layer>& layers);
std::vector<LayerWeights> chosen_weights(torch::nn::Module& model, const std::vector<Ledger::Layer>& layers);
std::vector<LayerSize> layer_sizes(torch::nn::Module& model, const std::vector<Ledger::Layer>& layers);

}  // namespace lowtide
