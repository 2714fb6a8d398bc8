#pragma once

#include <ATen/ATen.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lowtide/cost/ledger.h"
#include "lowtide/nn/quant_layer.h"

namespace lowtide::python {

// What quantize_ puts under one model: the execution that its layers share, the bits in force, and the ledger of what the
// layers compute.
class Quantization {
 public:
  struct Options {
    std::string engine;  // or "auto"
    std::string device;  // of the model: "cpu", "cuda"
    std::uint64_t seed = 0;
    std::vector<std::string> rules;  // PATTERN=PRECISION, the last that matches wins
  };
  explicit Quantization(const Options& options);
  Quantization(const Quantization&) = delete;
  Quantization& operator=(const Quantization&) = delete;

  // The next layer, with a rule and random numbers of its own.
  void attach(QuantLayer& layer, const std::string& name);
  // UserError for a rule that matches no layer that was attached.
  void check_rules() const;

  // The bits of training, for layers apart by their order here, and those of evaluation, from `step` on.
  void set_bits(std::int64_t step, StepBits scheduled, Bits evaluation);
  // Instead of both; counts nothing. None: as before.
  void override_bits(std::optional<Bits> bits) { override_ = bits; }
  const std::optional<Bits>& overridden() const { return override_; }
  Bits evaluation_bits() const { return override_.value_or(evaluation_); }

  // Before a layer's call: an evaluation is a call in evaluation mode that asks for no gradients.
  void choose_bits(bool training);
  // UserError, beginning with the layer, for a tensor that the engine cannot compute with.
  void check_device(const QuantLayer& layer, const at::Tensor& x) const;

  // Adds the calls since the last step to the ledger, at the scheduled bits.
  void end_step();

  const Execution& execution() const { return *execution_; }
  const std::vector<std::string>& rules() const { return options_.rules; }
  std::size_t layer_count() const { return layers_.size(); }
  const Ledger& ledger() const { return ledger_; }
  // UserError for the ledger of other layers.
  void restore_ledger(const Json& state);

 private:
  struct Attached {
    std::string name;
    LayerPrecision rule;
  };

  using Macs = std::map<std::string, std::atomic<std::int64_t>>;

  void count(const LayerEvent& call) const;
  std::vector<std::int64_t> take_macs() const;

  const Options options_;
  const LayerRules rules_;
  const std::shared_ptr<Execution> execution_ = std::make_shared<Execution>();
  std::vector<Attached> layers_;
  const std::shared_ptr<Macs> macs_ = std::make_shared<Macs>();  // of calls since the last step
  Ledger
      ledger_;  // an item is a step; it has its layers from the first step on, whose MACs they are told with
  StepBits scheduled_;
  Bits evaluation_;
  std::optional<Bits> override_;
};

}  // namespace lowtide::python
