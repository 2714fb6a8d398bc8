#include "lowtide/tasks/setup.h"

#include <fmt/format.h>

#include <cmath>
#include <map>

#include "lowtide/base/error.h"
#include "lowtide/base/gpu.h"
#include "lowtide/nn/quant_layer.h"

namespace lowtide {

torch::Device device_of(const RunningOptions& running) {
  if (running.device == "cpu") return torch::kCPU;
  expect_gpu();
  return torch::kCUDA;
}

void allow_tf32(bool allowed) {
  at::globalContext().setAllowTF32CuDNN(allowed);
  at::globalContext().setAllowTF32CuBLAS(allowed);
}

std::shared_ptr<Execution> make_execution(const PrecisionOptions& precision, const RunningOptions& running,
                                          std::uint64_t seed) {
  allow_tf32(running.device == "cuda" && running.tf32);
  if (running.device == "cuda") limit_gpu_memory(running.gpu_memory);
  auto execution = std::make_shared<Execution>();
  execution->engine = make_engine(choose_engine(precision.engine, running.device));
  execution->seed = seed;
  execution->stochastic = precision.grad_rounding == "stochastic";
  execution->bifurcate = precision.bifurcate;
  execution->recompute = precision.recompute;
  return execution;
}

void attach_layers(torch::nn::Module& model, const std::shared_ptr<Execution>& execution,
                   const std::vector<std::string>& own_rules, const std::vector<std::string>& layer_bits,
                   const std::string& name) {
  LayerRules rules(own_rules);
  for (const std::string& rule : layer_bits) rules.add(rule);
  attach_layers(model, execution, rules);
  std::vector<std::string> names;
  for (const QuantLayer* layer : quant_layers(model)) names.push_back(layer->layer_name());
  for (const std::string& pattern : LayerRules(layer_bits).unmatched(names)) {
    throw UserError(
        fmt::format("layer-bits: '{}' matches no layer of {}; `lowtide cost` lists them", pattern, name));
  }
}

std::vector<Ledger::Layer> measure_layers(torch::nn::Module& model, Execution& execution, std::int64_t items,
                                          const std::function<void()>& forward) {
  std::map<std::string, LayerPrecision> rules;
  for (const QuantLayer* layer : quant_layers(model)) rules[layer->layer_name()] = layer->rule();
  std::vector<Ledger::Layer> layers;
  std::map<std::string, std::size_t> place;
  const Evaluating evaluating(model, execution, {});
  execution.listener = [&](const LayerEvent& event) {
    const auto [found, is_new] = place.emplace(event.layer, layers.size());
    if (is_new) layers.push_back({event.layer, 0, rules.at(event.layer)});
    layers[found->second].macs += event.macs;
  };
  forward();
  execution.listener = nullptr;
  for (Ledger::Layer& layer : layers) {
    layer.macs = std::llround(static_cast<double>(layer.macs) / static_cast<double>(items));
  }
  return layers;
}

MacCounter::MacCounter(Execution& execution, const std::vector<Ledger::Layer>& layers)
    : execution_(execution), macs_(layers.size(), 0) {
  std::map<std::string, std::size_t> place;
  for (std::size_t i = 0; i < layers.size(); ++i) place.emplace(layers[i].name, i);
  execution_.listener = [this, place](const LayerEvent& event) {
    macs_[place.at(event.layer)] += event.macs;
  };
}

KeptBuffers::KeptBuffers(torch::nn::Module& model) {
  for (const torch::Tensor& buffer : model.buffers()) buffers_.emplace_back(buffer, buffer.clone());
}

KeptBuffers::~KeptBuffers() {
  const torch::NoGradGuard no_grad;
  for (auto& [buffer, value] : buffers_) buffer.copy_(value);
}

Evaluating::Evaluating(torch::nn::Module& model, Execution& execution, Bits bits)
    : model_(model),
      execution_(execution),
      training_bits_(execution.bits),
      was_training_(model.is_training()) {
  execution.bits = bits;
  model.train(execution.batch_statistics);
}

Evaluating::~Evaluating() {
  model_.train(was_training_);
  execution_.bits = training_bits_;
}

}  // namespace lowtide
