#include "lowtide/train/layer_look.h"

#include <cmath>
#include <limits>
#include <map>

#include "lowtide/engine/observed.h"
#include "lowtide/train/squares.h"

namespace lowtide {
namespace {

// The square of the widest range that x was quantised by.
torch::Tensor squared_range(const Quantized& x) {
  if (!x.scale.defined())
    return measure_range(x.code, RangeGroup::kTensor).range.to(torch::kDouble).square().sum();
  const double codes = std::exp2(static_cast<int>(x.bits)) - 1;
  return (x.scale.to(torch::kDouble).max() * codes).square();
}

class Unobserved final : public ProductObserver {
  void forward(const Quantized&, const Quantized&) override {}
  void input_gradient(const at::Tensor&) override {}
  void weight_gradient(const Quantized&, const at::Tensor&) override {}
  bool needs_input_gradient() const override { return false; }
};

}  // namespace

// What a layer reads, over its calls in a shard.
class LayerLook::Inputs final : public ProductObserver {
 public:
  void forward(const Quantized& input, const Quantized&) override {
    const torch::Tensor range = squared_range(input);
    range_ = range_.defined() ? torch::maximum(range_, range) : range;
  }
  void input_gradient(const at::Tensor& gradient) override {
    const torch::Tensor squares = sum_of_squares(gradient);
    gradient_ = gradient_.defined() ? gradient_ + squares : squares;
  }
  void weight_gradient(const Quantized&, const at::Tensor&) override {}
  bool needs_input_gradient() const override { return false; }

  // Undefined where the step has no such gradient.
  torch::Tensor term() const { return gradient_.defined() ? range_ * gradient_ : torch::Tensor(); }

 private:
  torch::Tensor range_, gradient_;  // squares
};

LayerLook::LayerLook(Execution& execution, const std::vector<LayerChoice>& layers, const Shards& shards)
    : execution_(execution), shards_(shards), engine_(execution.engine) {
  std::map<std::uint32_t, ShardInputs> observers;
  for (const LayerChoice& layer : layers) {
    inputs_.emplace_back();
    if (!layer.is_chosen) continue;
    for (std::int64_t shard = 0; shard < shards.count; ++shard)
      inputs_.back().push_back(std::make_shared<Inputs>());
    observers[layer.id] = inputs_.back();
  }
  // All of a trunk has to be of one kind.
  execution.engine = observed(engine_, std::make_shared<Unobserved>());
  execution.engine_of = [this, observers](const QuantLayer& layer) {
    const auto of_layer = observers.find(layer.id());
    if (of_layer == observers.end()) return execution_.engine;
    return observed(engine_, of_layer->second[static_cast<std::size_t>(execution_.shard - shards_.first)],
                    layout_of(layer));
  };
}

LayerLook::~LayerLook() {
  execution_.engine = engine_;
  execution_.engine_of = nullptr;
}

void LayerLook::take_gradients(const std::vector<LayerWeights>& weights,
                               const std::vector<torch::Tensor>& parameters) {
  const torch::NoGradGuard no_grad;
  squared_gradient_ = squared_gradient(parameters);
  const torch::Tensor none = torch::zeros_like(squared_gradient_);
  std::vector<torch::Tensor> of_inputs, of_weights;
  for (const LayerWeights& of_layer : weights) {
    const torch::Tensor term = weights_term(of_layer);
    of_weights.push_back(term.defined() ? term : none);
  }
  for (std::int64_t shard = 0; shard < shards_.count; ++shard) {
    for (const ShardInputs& inputs : inputs_) {
      const torch::Tensor term =
          inputs.empty() ? torch::Tensor() : inputs[static_cast<std::size_t>(shard)]->term();
      of_inputs.push_back(term.defined() ? term.reshape({}) : none);
    }
  }
  of_weights_ = torch::stack(of_weights);
  of_inputs_ = torch::stack(of_inputs).view({shards_.count, -1});
}

// A shard's loss is the mean over its items, and weighs as one of all shards in the batch's.
std::vector<double> LayerLook::sensitivities(Ranks& ranks, double rate, std::int64_t batch) const {
  const torch::Tensor of_inputs = torch::cat(ranks.gather(of_inputs_)).cpu(), of_weights = of_weights_.cpu();
  const auto by_shard = of_inputs.accessor<double, 2>();
  const auto by_layer = of_weights.accessor<double, 1>();
  const auto items = static_cast<double>(batch), shards = static_cast<double>(shards_.total);
  const double unit = 24 * rate * squared_gradient_.item<double>();
  std::vector<double> result;
  for (std::int64_t i = 0; i < of_weights.size(0); ++i) {
    double sum = 0;
    for (std::int64_t shard = 0; shard < of_inputs.size(0); ++shard) sum += by_shard[shard][i];
    sum = sum / (shards * shards) + items * by_layer[i];
    const bool is_chosen = !inputs_[static_cast<std::size_t>(i)].empty();
    result.push_back(is_chosen ? sum / unit : std::numeric_limits<double>::quiet_NaN());
  }
  return result;
}

}  // namespace lowtide
