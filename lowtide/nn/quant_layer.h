#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lowtide/nn/execution.h"
#include "lowtide/nn/layer_call.h"
#include "lowtide/quant/activation.h"
#include "lowtide/schedule/layer_rules.h"

namespace lowtide {

// The running range of an activation (spec: running = 0.9 running + 0.1 new, of the minimum and of the range,
// starting at 0), as two one-element buffers of the module that owns it.
class ActivationRange {
 public:
  ActivationRange() = default;
  // Of buffers that belong to somebody else.
  ActivationRange(at::Tensor min, at::Tensor range) : min_(std::move(min)), range_(std::move(range)) {}

  // The buffers are called …_min and …_range.
  void register_in(torch::nn::Module& owner, const std::string& name = "activation");

  // x as a layer reads it, of a LayerInput or of the ConvNorm that makes it: in training by its own range, by which the running
  // one is to move; else by the running one.
  template <typename Input>
  Quantized encode(Input& x, DeviceBits bits, bool training, std::vector<RangeUpdate>& updates) const {
    if (is_float_bits(bits)) return x.encode({}, bits);
    if (!training) return x.encode(running(), bits);
    MeasuredCodes measured = x.encode_measured(bits);
    updates.push_back(update(measured.range));
    return std::move(measured.codes);
  }
  // The same, and moves it.
  Quantized encode(LayerInput& x, DeviceBits bits, bool training) const;

  // The same for a layer that quantises each index of x's first dimension, a step in time, as a call of its own.
  Range of_each_step(const at::Tensor& x, int bits, bool training) const;

  // Moves the running range by one after the other.
  void track_each(const std::vector<Range>& steps) const;

  Range running() const { return {min_, range_}; }

 private:
  RangeUpdate update(const Range& now) const { return {min_, range_, now}; }

  at::Tensor min_;
  at::Tensor range_;
};

// What a layer has from the model that it is part of: its name, the execution it shares with the others, and random
// numbers of its own.
class AttachedLayer {
 public:
  virtual ~AttachedLayer() = default;

  // `id`, below 2^16, tells this layer's random numbers from those of the others.
  void attach(std::shared_ptr<const Execution> execution, std::string name, std::uint32_t id);

  const std::string& layer_name() const { return name_; }
  std::uint32_t id() const { return id_; }
  const Execution& execution() const;

  // Of one call of this layer: a layer that is called several times in a step (a recurrent one, a head shared by several
  // levels) draws anew each time. Calls without a gradient draw nothing, and are not counted.
  NoiseKey noise_key() const;

 private:
  std::shared_ptr<const Execution> execution_;
  std::string name_ = "(unnamed)";
  std::uint32_t id_ = 0;
  mutable std::int64_t step_ = -1;  // in which the calls were counted, and in which shard of it
  mutable std::uint32_t shard_ = 0;
  mutable std::uint32_t calls_ = 0;
};

// What quantised layers have in common, beside: the rule for their bits.
class QuantLayer : public AttachedLayer {
 public:
  void set_rule(LayerPrecision rule) { rule_ = rule; }
  const LayerPrecision& rule() const { return rule_; }

  // The bits in force for this layer: by its rule, else as the schedule has them for this layer, else for all.
  Bits bits() const { return rule_.resolve(execution().bits.of(id())); }

  // For one call, with noise of its own.
  LayerFormat format() const;
  void prepare(LayerCall& call, bool needs_input_gradient) const;
  bool has_listener() const { return static_cast<bool>(execution().listener); }
  void tell(const at::Tensor& output, std::int64_t macs) const;

 protected:
  // Those of its operands, as a captured step reads them.
  DeviceBits forward_bits() const { return {bits().forward, on_device(&StepParameters::forward_bits)}; }

 private:
  // This layer's number in a table of captured steps; nothing where none are captured.
  using BitsTable = std::uint8_t (StepParameters::*)[StepParameters::kLayers];
  const std::uint8_t* on_device(BitsTable table) const;

  LayerPrecision rule_;
};

// The quantised layers of a model in the order of their names' registration.
std::vector<QuantLayer*> quant_layers(torch::nn::Module& model);

// Attaches every layer of the model that wants it; a later rule wins over an earlier one.
void attach_layers(torch::nn::Module& model, const std::shared_ptr<const Execution>& execution,
                   const LayerRules& rules);

}  // namespace lowtide
