#pragma once

#include <cstdint>
#include <vector>

#include "lowtide/base/torch.h"
#include "lowtide/cost/ledger.h"
#include "lowtide/schedule/schedule.h"

// For which layers a schedule with bits for each of them chooses.

namespace lowtide {

struct LayerChoice {
  std::uint32_t id = 0;
  bool is_chosen = false;
};
// What a layer multiplies by, if it has no rule of its own: else nothing, as for a product of two activations.
using LayerWeights = std::vector<torch::Tensor>;

// All of the ledger's layers, in its order.
std::vector<LayerChoice> layer_choices(torch::nn::Module& model, const std::vector<Ledger::Layer>& layers);
std::vector<LayerWeights> chosen_weights(torch::nn::Module& model, const std::vector<Ledger::Layer>& layers);
std::vector<LayerSize> layer_sizes(torch::nn::Module& model, const std::vector<Ledger::Layer>& layers);

}  // namespace lowtide
