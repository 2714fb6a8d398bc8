#include "lowtide/train/layer_statistics.h"

#include <cmath>
#include <map>
#include <utility>

#include "lowtide/engine/observed.h"
#include "lowtide/nn/quant_conv2d.h"
#include "lowtide/nn/quant_graph_conv.h"
#include "lowtide/nn/quant_linear.h"
#include "lowtide/nn/quant_lstm.h"
#include "lowtide/tasks/chosen_layers.h"
#include "lowtide/tasks/setup.h"
#include "lowtide/train/squares.h"

namespace lowtide {
namespace {

// Signal and quantisation noise, summed over calls.
struct SignalToNoise {
  torch::Tensor signal, noise;

  void add(const torch::Tensor& value, const Quantized& quantised) {
    const torch::Tensor of_value = sum_of_squares(value),
                        of_noise = sum_of_squares(value - decode(quantised));
    signal = signal.defined() ? signal + of_value : of_value;
    noise = noise.defined() ? noise + of_noise : of_noise;
  }

  std::optional<double> decibels() const {
    if (!signal.defined()) return std::nullopt;
    return 10 * std::log10(signal.item<double>() / noise.item<double>());
  }
};

// How a layer rounds what it reads.
struct InputFormat {
  RangeGroup ranges = RangeGroup::kTensor;
  Range running{};  // by which an evaluation quantises; none where that too has ranges of its own
};

// The layer's bits, and how it rounds its input and its error.
struct LayerPrecisionNow {
  Bits bits;
  InputFormat input;
  ErrorFormat error;
  std::optional<RangeGroup> error_ranges;  // nothing: of positions, and the error's noise is left out
};

class LayerObserver : public ProductObserver {
 public:
  explicit LayerObserver(LayerPrecisionNow precision) : now_(std::move(precision)) {}

  void forward(const Quantized& input, const Quantized& /*weight*/) override { read(input.code, now_.input); }

  void input_gradient(const torch::Tensor& gradient) override {
    const torch::Tensor squares = sum_of_squares(gradient);
    input_gradient_ = input_gradient_.defined() ? input_gradient_ + squares : squares;
  }

  void weight_gradient(const Quantized& error, const torch::Tensor& /*gradient*/) override {
    if (is_float_bits(now_.bits.backward) || !now_.error_ranges) return;
    const Range range = measure_range(error.code, *now_.error_ranges);
    error_.add(error.code, quantise_error(error.code, now_.error, range).for_input);
  }

  // Of a layer with these weights and their gradients. `unit` is 24·η·‖G‖².
  LayerFigures figures(const std::string& layer, const std::vector<torch::Tensor>& weights, double batch,
                       double unit) const {
    LayerFigures result{.layer = layer,
                        .weight_snr = weight_decibels(weights),
                        .activation_snr = activation_.decibels(),
                        .error_snr = error_.decibels()};
    if (values_ > 0) result.clipped = static_cast<double>(clipped_) / static_cast<double>(values_);
    const torch::Tensor of_weights = weights_term(weights);
    if (!of_weights.defined()) return result;
    double sum = batch * of_weights.item<double>();
    if (input_gradient_.defined()) sum += (input_range_ * input_gradient_).item<double>();
    result.sensitivity = sum / unit;
    return result;
  }

 protected:
  void read(const torch::Tensor& x, const InputFormat& format) {
    const Range range = measure_range(x, format.ranges);
    const torch::Tensor square = range.range.to(torch::kDouble).max().square();
    input_range_ = input_range_.defined() ? torch::maximum(input_range_, square) : square;
    if (is_float_bits(now_.bits.forward)) return;
    activation_.add(x, encode(x, range, now_.bits.forward));
    if (!format.running.min.defined()) return;
    clipped_ += outside(x, format.running).sum().item<std::int64_t>();
    values_ += x.numel();
  }

  const LayerPrecisionNow now_;

 private:
  std::optional<double> weight_decibels(const std::vector<torch::Tensor>& weights) const {
    SignalToNoise ratio;
    for (const torch::Tensor& weight : weights) {
      const torch::Tensor w = contiguous(weight.detach());
      if (!is_float_bits(now_.bits.forward)) ratio.add(w, encode_rows(w, now_.bits.forward));
    }
    return ratio.decibels();
  }

  // By more than half the distance of two codes: what rounding to the last code would not account for.
  torch::Tensor outside(const torch::Tensor& x, const Range& running) const {
    const auto& [min, range] = running;
    const torch::Tensor half = range / (2 * ((std::int64_t{1} << now_.bits.forward) - 1));
    return x.lt(min - half) | x.gt(min + range + half);
  }

  SignalToNoise activation_, error_;
  std::int64_t clipped_ = 0, values_ = 0;
  torch::Tensor input_range_;     // its square
  torch::Tensor input_gradient_;  // sum of squares
};

// Reads x for all steps in time at once, then h step by step, each step with a range of its own.
class LstmObserver final : public LayerObserver {
 public:
  LstmObserver(LayerPrecisionNow precision, InputFormat hidden, torch::Tensor input_weight)
      : LayerObserver(std::move(precision)),
        hidden_(std::move(hidden)),
        input_weight_(std::move(input_weight)) {}

  void forward(const Quantized& input, const Quantized& weight) override {
    if (weight.code.data_ptr() == input_weight_.data_ptr()) {
      x_ = input.code;
      return;
    }
    // The rows of h are those of a step.
    if (x_.defined()) read(x_.view({-1, input.code.size(0) * x_.size(1)}), now_.input);
    x_ = torch::Tensor();
    read(input.code, hidden_);
  }

 private:
  const InputFormat hidden_;
  const torch::Tensor input_weight_;
  torch::Tensor x_;  // until it is known how many rows a step has
};

// While it lives, the model computes in floats, and nothing that training goes on with can change.
class OnTheSide {
 public:
  OnTheSide(torch::nn::Module& model, Execution& execution)
      : kept_(model), execution_(execution), before_(execution) {
    for (torch::Tensor& parameter : model.parameters()) {
      gradients_.emplace_back(parameter, parameter.grad());
      parameter.mutable_grad() = torch::Tensor();
    }
    execution.engine = make_engine("simulated");
    execution.bits = {};
    execution.step = kNoStep;
    execution.on_device = nullptr;
  }

  ~OnTheSide() {
    for (auto& [parameter, gradient] : gradients_) parameter.mutable_grad() = gradient;
    execution_ = before_;
  }

  OnTheSide(const OnTheSide&) = delete;
  OnTheSide& operator=(const OnTheSide&) = delete;

 private:
  const KeptBuffers kept_;
  Execution& execution_;
  const Execution before_;
  std::vector<std::pair<torch::Tensor, torch::Tensor>> gradients_;
};

// The pass on the side may not be seen through it.
Range kept(const ActivationRange& range) {
  return {range.running().min.clone(), range.running().range.clone()};
}

LayerPrecisionNow precision_of(const QuantLayer& layer) {
  const Execution& execution = layer.execution();
  const Bits bits = layer.bits();
  return {.bits = bits,
          .input = {},
          .error = {.bits = bits.backward,
                    .noise = execution.stochastic ? Noise::drawn({execution.seed, execution.step, layer.id()})
                                                  : Noise::none()},
          .error_ranges = RangeGroup::kTensor};
}

// Nothing for a product of two activations.
std::shared_ptr<LayerObserver> observer_of(QuantLayer& layer) {
  LayerPrecisionNow now = precision_of(layer);
  if (auto* conv = dynamic_cast<QuantConv2dImpl*>(&layer)) {
    now.input.running = kept(conv->input_range());
  } else if (auto* linear = dynamic_cast<QuantLinearImpl*>(&layer)) {
    now.input.running = kept(linear->input_range());
    if (linear->options.error != ErrorRange::kTensor) now.error_ranges = std::nullopt;
  } else if (auto* lstm = dynamic_cast<QuantLstmImpl*>(&layer)) {
    now.input = {.ranges = RangeGroup::kRow, .running = kept(lstm->ranges().input)};
    now.error_ranges = RangeGroup::kRow;
    const InputFormat hidden{.running = kept(lstm->ranges().hidden)};
    return std::make_shared<LstmObserver>(std::move(now), hidden, lstm->input_weight);
  } else if (dynamic_cast<GraphConv*>(&layer) != nullptr) {
    now.input.ranges = RangeGroup::kRow;
  } else {
    return nullptr;
  }
  return std::make_shared<LayerObserver>(std::move(now));
}

}  // namespace

std::vector<LayerFigures> layer_statistics(Task& task, double rate, std::int64_t batch) {
  std::map<const QuantLayer*, std::shared_ptr<LayerObserver>> observers;
  const std::vector<QuantLayer*> layers = quant_layers(task.model());
  for (QuantLayer* layer : layers) {
    if (auto observer = observer_of(*layer)) observers.emplace(layer, std::move(observer));
  }
  Execution& execution = task.execution();
  const OnTheSide on_the_side(task.model(), execution);
  execution.engine_of = [&](const QuantLayer& layer) {
    const auto observer = observers.find(&layer);
    return observer == observers.end() ? execution.engine
                                       : observed(execution.engine, observer->second, layout_of(layer));
  };
  task.repeat_loss().backward();
  const torch::NoGradGuard no_grad;
  const double unit = 24 * rate * squared_gradient(task.model().parameters()).item<double>();
  std::vector<LayerFigures> result;
  for (QuantLayer* layer : layers) {
    if (const auto observer = observers.find(layer); observer != observers.end())
      result.push_back(observer->second->figures(layer->layer_name(), weights_of(*layer),
                                                 static_cast<double>(batch), unit));
  }
  return result;
}

}  // namespace lowtide
