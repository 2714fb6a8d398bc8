#include "lowtide/tasks/chosen_layers.h"

#include <map>
#include <string>

#include "lowtide/nn/quant_conv2d.h"
#include "lowtide/nn/quant_gat_conv.h"
#include "lowtide/nn/quant_graph_conv.h"
#include "lowtide/nn/quant_linear.h"
#include "lowtide/nn/quant_lstm.h"

namespace lowtide {

LayerWeights weights_of(QuantLayer& layer) {
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

namespace {

LayerWeights weights_chosen_for(QuantLayer& layer) {
  const bool has_rule = layer.rule().kind != LayerPrecision::Kind::kScheduled;
  return has_rule ? LayerWeights() : weights_of(layer);
}

std::vector<QuantLayer*> in_order(torch::nn::Module& model, const std::vector<Ledger::Layer>& layers) {
  std::map<std::string, QuantLayer*> by_name;
  for (QuantLayer* layer : quant_layers(model)) by_name.emplace(layer->layer_name(), layer);
  std::vector<QuantLayer*> ordered;
  for (const Ledger::Layer& layer : layers) ordered.push_back(by_name.at(layer.name));
  return ordered;
}

}  // namespace

std::vector<LayerChoice> layer_choices(torch::nn::Module& model, const std::vector<Ledger::Layer>& layers) {
  std::vector<LayerChoice> choices;
  for (QuantLayer* layer : in_order(model, layers))
    choices.push_back({layer->id(), !weights_chosen_for(*layer).empty()});
  return choices;
}

std::vector<LayerWeights> chosen_weights(torch::nn::Module& model, const std::vector<Ledger::Layer>& layers) {
  std::vector<LayerWeights> weights;
  for (QuantLayer* layer : in_order(model, layers)) weights.push_back(weights_chosen_for(*layer));
  return weights;
}

std::vector<LayerSize> layer_sizes(torch::nn::Module& model, const std::vector<Ledger::Layer>& layers) {
  const std::vector<LayerChoice> choices = layer_choices(model, layers);
  std::vector<LayerSize> sizes;
  for (std::size_t i = 0; i < layers.size(); ++i) sizes.push_back({layers[i].macs, choices[i].is_chosen});
  return sizes;
}

}  // namespace lowtide
