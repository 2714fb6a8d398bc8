#include "lowtide/tasks/chosen_layers.h"

#include "lowtide/nn/quant_conv2d.h"
#include "lowtide/nn/quant_gat_conv.h"
#include "lowtide/nn/quant_graph_conv.h"
#include "lowtide/nn/quant_linear.h"
#include "lowtide/nn/quant_lstm.h"

namespace lowtide {

std::vector<torch::Tensor> weights_of(QuantLayer& layer) {
  if (auto* conv = dynamic_cast<QuantConv2dImpl*>(&layer)) return {conv->weight};
  if (auto* linear = dynamic_cast<QuantLinearImpl*>(&layer)) return {linear->weight};
  if (auto* lstm = dynamic_cast<QuantLstmImpl*>(&layer)) return {lstm->input_weight, lstm->hidden_weight};
  if (auto* gcn = dynamic_cast<QuantGcnConvImpl*>(&layer)) return {gcn->weight};
  if (auto* sage = dynamic_cast<QuantSageConvImpl*>(&layer))
    return {sage->self_weight, sage->neighbour_weight};
  if (auto* gat = dynamic_cast<QuantGatConvImpl*>(&layer)) return {gat->weight};
  return {};
}

WeightLayout layout_of(const QuantLayer& layer) {
  const bool by_inputs = dynamic_cast<const QuantGcnConvImpl*>(&layer) != nullptr ||
                         dynamic_cast<const QuantGatConvImpl*>(&layer) != nullptr;
  return by_inputs ? WeightLayout::kInputsByOutputs : WeightLayout::kOutputsByInputs;
}

std::vector<torch::Tensor> weights_chosen_for(QuantLayer& layer) {
  const bool has_rule = layer.rule().kind != LayerPrecision::Kind::kScheduled;
  return has_rule ? std::vector<torch::Tensor>() : weights_of(layer);
}

std::map<std::string, QuantLayer*> layers_by_name(torch::nn::Module& model) {
  std::map<std::string, QuantLayer*> layers;
  for (QuantLayer* layer : quant_layers(model)) layers.emplace(layer->layer_name(), layer);
  return layers;
}

std::vector<LayerSize> layer_sizes(torch::nn::Module& model, const std::vector<Ledger::Layer>& layers) {
  const auto by_name = layers_by_name(model);
  std::vector<LayerSize> sizes;
  for (const Ledger::Layer& layer : layers)
    sizes.push_back({layer.macs, !weights_chosen_for(*by_name.at(layer.name)).empty()});
  return sizes;
}

}  // namespace lowtide
