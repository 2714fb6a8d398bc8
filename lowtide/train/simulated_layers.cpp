#include "lowtide/train/simulated_layers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "lowtide/nn/quant_conv2d.h"

namespace lowtide {

std::vector<std::string> simulated_layers(torch::nn::Module& model, const Execution& execution) {
  std::vector<std::string> names;
  const Engine& engine = *execution.engine;
  for (const QuantLayer* layer : quant_layers(model)) {
    const auto* conv = dynamic_cast<const QuantConv2dImpl*>(layer);
    if (conv == nullptr) continue;  // made of products of matrices
    // A trunk's convolutions are followed by a normalisation and have no bias.
    const bool in_trunk = !conv->options.bias;
    if (!engine.has_kernels({conv->weight, kByteBits, conv->options.groups, conv->options.stride}, in_trunk))
      names.push_back(layer->layer_name());
  }
  return names;
}

std::string simulated_text(torch::nn::Module& model, const Execution& execution) {
  constexpr std::size_t kNamed = 4;
  const std::vector<std::string> names = simulated_layers(model, execution);
  if (names.empty()) return "";
  const std::size_t layers = quant_layers(model).size();
  std::vector<std::string> named(names.begin(), names.begin() + std::min(kNamed, names.size()));
  if (names.size() > kNamed) named.push_back(fmt::format("{} more", names.size() - kNamed));
  return fmt::format("engine {}: {} of {} layers on kernels of its own; as simulated: {}",
                     execution.engine->name(), layers - names.size(), layers, fmt::join(named, ", "));
}

}  // namespace lowtide
