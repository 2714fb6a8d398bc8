#pragma once

#include <ATen/ATen.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lowtide/cost/ledger.h"
#include "lowtide/nn/quant_layer.h"
#include "lowtide/schedule/schedule.h"
#include "lowtide/train/layer_look.h"

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

  // The next layer, with a rule and random numbers of its own. One of two activations has no weights.
  void attach(QuantLayer& layer, const std::string& name, bool has_weights);
  // UserError for a rule that matches no layer that was attached.
  void check_rules() const;

  // What a forward pass multiplies, by layer, as a schedule sees it that chooses bits for each.
  std::vector<LayerSize> layer_sizes(const std::function<void()>& pass);

  // The bits of training, for layers apart by their order here, and those of evaluation, from `step` on; and whether it is
  // looked at how sensitive layers are.
  void set_bits(std::int64_t step, StepBits scheduled, Bits evaluation, bool is_looked_at);
  // See LayerLook, of the step that is looked at.
  std::vector<double> sensitivities(const std::vector<at::Tensor>& parameters, double rate,
                                    std::int64_t items);
  // A layer's weight, or one of several, as the layer multiplies by it in the present step.
  at::Tensor looked_at(const QuantLayer& layer, const at::Tensor& weight, std::size_t number = 0);

  // Instead of both; counts nothing. None: as before.
  void override_bits(std::optional<Bits> bits) { override_ = bits; }
  const std::optional<Bits>& overridden() const { return override_; }
  // Forward passes alone: while it lives, layers compute at these bits, and what they multiply is counted apart.
  class Probing {
   public:
    Probing(Quantization& quantization, Bits bits);
    ~Probing();
    Probing(const Probing&) = delete;
    Probing& operator=(const Probing&) = delete;

    // MACs so far, by layer.
    std::vector<std::int64_t> macs() const { return quantization_.macs_so_far(); }

   private:
    Quantization& quantization_;
    const std::optional<Bits> override_before_;
    const std::vector<std::int64_t> of_step_;
  };
  void add_probe(Bits bits, const std::vector<std::int64_t>& macs);
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
    bool has_weights = true;

    bool is_chosen() const { return has_weights && rule.kind == LayerPrecision::Kind::kScheduled; }
  };

  using Macs = std::map<std::string, std::atomic<std::int64_t>>;

  void count(const LayerEvent& call) const;
  std::vector<std::int64_t> macs_so_far() const;
  void set_macs(const std::vector<std::int64_t>& macs) const;
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
  bool probes_ = false;
  bool is_step_ = false;  // what is computed now: a forward pass of training that is not an aside
  std::unique_ptr<LayerLook> look_;
  std::vector<LayerWeights> weights_;  // that the look saw, each with its gradient
};

}  // namespace lowtide::python
