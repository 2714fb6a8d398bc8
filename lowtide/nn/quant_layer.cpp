#include "lowtide/nn/quant_layer.h"

#include <utility>

#include "lowtide/base/error.h"
#include "lowtide/base/torch.h"

namespace lowtide {

void AttachedLayer::attach(std::shared_ptr<const Execution> execution, std::string name, std::uint32_t id) {
  LOWTIDE_CHECK(id < 1u << 16, "a model of more layers than noise can tell apart");
  execution_ = std::move(execution);
  name_ = std::move(name);
  id_ = id;
}

const Execution& AttachedLayer::execution() const {
  LOWTIDE_CHECK(execution_ != nullptr, "layer used before attach_layers");
  return *execution_;
}

NoiseKey AttachedLayer::noise_key() const {
  if (!at::GradMode::is_enabled()) return {execution().seed, execution().step, id_};
  if (step_ != execution().step || shard_ != execution().shard) calls_ = 0;
  step_ = execution().step;
  shard_ = execution().shard;
  const StepParameters* on_device = execution().on_device;
  return {execution().seed, execution().step, id_ | calls_++ << 16, on_device ? &on_device->step : nullptr,
          shard_};
}

const std::uint8_t* QuantLayer::on_device(BitsTable table) const {
  // Steps alone are captured: an evaluation between two of them has bits of its own.
  const StepParameters* parameters = at::GradMode::is_enabled() ? execution().on_device : nullptr;
  if (parameters == nullptr) return nullptr;
  LOWTIDE_CHECK(id() < StepParameters::kLayers, "a model of more layers than a captured step has bits for");
  return parameters->*table + id();
}

LayerFormat QuantLayer::format() const {
  return {execution().engine_of ? execution().engine_of(*this) : execution().engine,
          bits(),
          execution().stochastic ? Noise::drawn(noise_key()) : Noise::none(),
          execution().bifurcate,
          on_device(&StepParameters::forward_bits),
          on_device(&StepParameters::backward_bits)};
}

void QuantLayer::prepare(LayerCall& call, bool needs_input_gradient) const {
  static_cast<LayerFormat&>(call) = format();
  call.needs_input_gradient = needs_input_gradient;
}

void QuantLayer::tell(const at::Tensor& output, std::int64_t macs) const {
  if (has_listener()) execution().listener({layer_name(), output, macs});
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
    if (auto* layer = dynamic_cast<AttachedLayer*>(item.value().get()))
      layer->attach(execution, item.key(), id++);
    if (auto* layer = dynamic_cast<QuantLayer*>(item.value().get())) layer->set_rule(rules.match(item.key()));
  }
}

void ActivationRange::register_in(torch::nn::Module& owner, const std::string& name) {
  min_ = owner.register_buffer(name + "_min", torch::zeros({1}));
  range_ = owner.register_buffer(name + "_range", torch::zeros({1}));
}

Quantized ActivationRange::encode(LayerInput& x, DeviceBits bits, bool training) const {
  const at::NoGradGuard no_grad;
  std::vector<RangeUpdate> updates;
  Quantized codes = encode(x, bits, training, updates);
  track(updates);
  return codes;
}

Range ActivationRange::of_each_step(const at::Tensor& x, int bits, bool training) const {
  if (is_float_bits(bits)) return {};
  if (!training) return running();
  const at::NoGradGuard no_grad;
  Range now = measure_range(x, RangeGroup::kRow);
  std::vector<Range> steps;
  for (std::int64_t t = 0; t < x.size(0); ++t)
    steps.push_back({now.min.narrow(0, t, 1), now.range.narrow(0, t, 1)});
  track_each(steps);
  return now;
}

void ActivationRange::track_each(const std::vector<Range>& steps) const {
  std::vector<RangeUpdate> updates;
  for (const Range& step : steps) updates.push_back(update(step));
  track(updates);
}

}  // namespace lowtide
