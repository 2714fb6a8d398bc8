#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "lowtide/nn/activation.h"
#include "lowtide/nn/execution.h"
#include "lowtide/schedule/layer_rules.h"

namespace lowtide {

// The running range of an activation (spec: running = 0.9 running + 0.1 new, of the minimum and of the range,
// starting at 0), as two one-element buffers of the module that owns it.
class ActivationRange {
 public:
  void register_in(torch::nn::Module& owner);

  // The range to quantise x with: in training that of x, which also moves the running one; else the running one.
  // None where bits are float.
  Range of(const Activation& x, int bits, bool training);

  // Moves the running range by one that was measured, and returns that.
  Range track(const Range& now);

 private:
  static constexpr double kMomentum = 0.1;
  at::Tensor min_;
  at::Tensor range_;
};

// What quantised layers have in common: their name in the model, the rule for their bits, and the execution
// they share with the rest of the model.
class QuantLayer {
 public:
  virtual ~QuantLayer() = default;

  // `id` tells this layer's noise from that of the others.
  void attach(std::shared_ptr<const Execution> execution, std::string name, std::uint32_t id,
              LayerPrecision rule);

  const std::string& layer_name() const { return name_; }
  const LayerPrecision& rule() const { return rule_; }

 protected:
  // Fills in what a call takes from the execution: engine, bits in force, noise.
  void prepare(LayerCall& call, bool needs_input_gradient) const;
  void tell(const at::Tensor& output, std::int64_t macs_per_item) const;

 private:
  const Execution& execution() const;

  std::shared_ptr<const Execution> execution_;
  std::string name_ = "(unnamed)";
  std::uint32_t id_ = 0;
  LayerPrecision rule_;
};

// The quantised layers of a model in the order of their names' registration.
std::vector<QuantLayer*> quant_layers(torch::nn::Module& model);

// Attaches every quantised layer of the model; a later rule wins over an earlier one.
void attach_layers(torch::nn::Module& model, const std::shared_ptr<const Execution>& execution,
                   const LayerRules& rules);

}  // namespace lowtide
