#include "lowtide/nn/quant_layer.h"

#include <torch/torch.h>

#include <utility>

#include "lowtide/base/error.h"

namespace lowtide {

void QuantLayer::attach(std::shared_ptr<const Execution> execution, std::string name, std::uint32_t id,
                        LayerPrecision rule) {
  execution_ = std::move(execution);
  name_ = std::move(name);
  id_ = id;
  rule_ = rule;
}

const Execution& QuantLayer::execution() const {
  LOWTIDE_CHECK(execution_ != nullptr, "layer used before attach_layers");
  return *execution_;
}

void QuantLayer::prepare(LayerCall& call, bool needs_input_gradient) const {
  call.engine = execution().engine;
  call.bits = rule_.resolve(execution().bits);
  if (execution().stochastic) call.noise = Noise::drawn({execution().seed, execution().step, id_});
  call.bifurcate = execution().bifurcate;
  call.recompute = execution().recompute;
  call.needs_input_gradient = needs_input_gradient;
}

void QuantLayer::tell(const at::Tensor& output, std::int64_t macs_per_item) const {
  if (execution().listener) execution().listener({name_, output, macs_per_item});
}

std::vector<QuantLayer*> quant_layers(torch::nn::Module& model) {
  std::vector<QuantLayer*> layers;
  for (const auto& module : model.modules()) {
    if (auto* layer = dynamic_cast<QuantLayer*>(module.get())) layers.push_back(layer);
  }
  return layers;
}

void attach_layers(torch::nn::Module& model, const std::shared_ptr<const Execution>& execution,
                   const LayerRules& rules) {
  std::uint32_t id = 0;
  for (const auto& item : model.named_modules(/*name_prefix=*/"", /*include_self=*/false)) {
    auto* layer = dynamic_cast<QuantLayer*>(item.value().get());
    if (layer != nullptr) layer->attach(execution, item.key(), id++, rules.match(item.key()));
  }
}

void ActivationRange::register_in(torch::nn::Module& owner) {
  min_ = owner.register_buffer("activation_min", torch::zeros({1}));
  range_ = owner.register_buffer("activation_range", torch::zeros({1}));
}

Range ActivationRange::of(const Activation& x, int bits, bool training) {
  if (is_float_bits(bits)) return {};
  if (!training) return {min_, range_};
  const at::NoGradGuard no_grad;
  return track(x.range.min.defined() ? x.range : measure_range(x.value, RangeGroup::kTensor));
}

Range ActivationRange::track(const Range& now) {
  const at::NoGradGuard no_grad;
  min_.mul_(1 - kMomentum).add_(now.min, kMomentum);
  range_.mul_(1 - kMomentum).add_(now.range, kMomentum);
  return now;
}

}  // namespace lowtide
