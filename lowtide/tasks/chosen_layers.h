#pragma once

#include <map>
#include <string>
#include <vector>

#include "lowtide/base/torch.h"
#include "lowtide/cost/ledger.h"
#include "lowtide/engine/observed.h"
#include "lowtide/nn/quant_layer.h"
#include "lowtide/schedule/schedule.h"

// What layers multiply by, and for which of them a schedule with bits for each chooses.

namespace lowtide {

// Nothing for a product of two activations.
std::vector<torch::Tensor> weights_of(QuantLayer& layer);
WeightLayout layout_of(const QuantLayer& layer);

// The same, if it has no rule of its own: else nothing.
std::vector<torch::Tensor> weights_chosen_for(QuantLayer& layer);

// The ledger's layers as such a schedule sees them.
std::vector<LayerSize> layer_sizes(torch::nn::Module& model, const std::vector<Ledger::Layer>& layers);

std::map<std::string, QuantLayer*> layers_by_name(torch::nn::Module& model);

}  // namespace lowtide
