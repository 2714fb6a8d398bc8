#include "lowtide/train/layer_statistics.h"

#include <cmath>
#include <map>
#include <utility>

#include "lowtide/engine/observed.h"
#include "lowtide/nn/quant_conv2d.h"
#include "lowtide/nn/quant_linear.h"
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

// The layer's bits, and how it rounds its error.
struct LayerPrecisionNow {
  Bits bits;
  ErrorFormat error;
  bool has_error_range = true;  // one for all: else the error's noise is left out
  Range running;                // of its input, by which an evaluation quantises
};

class LayerObserver final : public ProductObserver {
 public:
  explicit LayerObserver(LayerPrecisionNow precision) : now_(std::move(precision)) {}

  void forward(const Quantized& input, const Quantized& weight) override {
    const torch::Tensor& x = input.code;
    const Range range = measure_range(x, RangeGroup::kTensor);
    const torch::Tensor square = range.range.to(torch::kDouble).square();
    input_range_ = input_range_.defined() ? torch::maximum(input_range_, square) : square;
    weight_ranges_ = measure_range(weight.code, RangeGroup::kRow).range.to(torch::kDouble).square().flatten();
    if (is_float_bits(now_.bits.forward)) return;
    activation_.add(x, encode(x, range, now_.bits.forward));
    weight_.add(weight.code, encode_rows(weight.code, now_.bits.forward));
    clipped_ += outside(x).sum().item<std::int64_t>();
    values_ += x.numel();
  }

  void input_gradient(const torch::Tensor& gradient) override {
    const torch::Tensor squares = sum_of_squares(gradient);
    input_gradient_ = input_gradient_.defined() ? input_gradient_ + squares : squares;
  }

  void weight_gradient(const Quantized& error, const torch::Tensor& gradient) override {
    weight_gradient_ = weight_gradient_.defined() ? weight_gradient_ + gradient : gradient;
    if (is_float_bits(now_.bits.backward) || !now_.has_error_range) return;
    error_.add(error.code, quantise_error(error.code, now_.error).for_input);
  }

  // `unit` is 24·η·‖G‖².
  LayerFigures figures(const std::string& layer, double batch, double unit) const {
    LayerFigures result{.layer = layer,
                        .weight_snr = weight_.decibels(),
                        .activation_snr = activation_.decibels(),
                        .error_snr = error_.decibels()};
    if (values_ > 0) result.clipped = static_cast<double>(clipped_) / static_cast<double>(values_);
    if (!weight_gradient_.defined()) return result;
    double sum = batch * sum_in_order(weight_ranges_ * row_squares(weight_gradient_)).item<double>();
    if (input_gradient_.defined()) sum += (input_range_ * input_gradient_).item<double>();
    result.sensitivity = sum / unit;
    return result;
  }

 private:
  // By more than half the distance of two codes: what rounding to the last code would not account for.
  torch::Tensor outside(const torch::Tensor& x) const {
    const auto& [min, range] = now_.running;
    const torch::Tensor half = range / (2 * ((std::int64_t{1} << now_.bits.forward) - 1));
    return x.lt(min - half) | x.gt(min + range + half);
  }

  const LayerPrecisionNow now_;
  SignalToNoise weight_, activation_, error_;
  std::int64_t clipped_ = 0, values_ = 0;
  torch::Tensor input_range_, weight_ranges_;  // squares of ranges
  torch::Tensor input_gradient_;               // sum of squares
  torch::Tensor weight_gradient_;
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

// Nothing for a layer of another kind.
std::optional<LayerPrecisionNow> precision_of(QuantLayer& layer) {
  auto* conv = dynamic_cast<QuantConv2dImpl*>(&layer);
  auto* linear = dynamic_cast<QuantLinearImpl*>(&layer);
  if (conv == nullptr && linear == nullptr) return std::nullopt;
  const Execution& execution = layer.execution();
  LayerPrecisionNow now;
  now.bits = layer.bits();
  now.error = {.bits = now.bits.backward,
               .noise = execution.stochastic ? Noise::drawn({execution.seed, execution.step, layer.id()})
                                             : Noise::none()};
  now.has_error_range = conv != nullptr || linear->options.error == ErrorRange::kTensor;
  now.running = conv != nullptr ? conv->input_range().running() : linear->input_range().running();
  // The pass on the side may not be seen through it.
  now.running = {now.running.min.clone(), now.running.range.clone()};
  return now;
}

}  // namespace

std::vector<LayerFigures> layer_statistics(Task& task, double rate) {
  std::map<const QuantLayer*, std::shared_ptr<LayerObserver>> observers;
  const std::vector<QuantLayer*> layers = quant_layers(task.model());
  for (QuantLayer* layer : layers) {
    if (auto precision = precision_of(*layer))
      observers[layer] = std::make_shared<LayerObserver>(std::move(*precision));
  }
  Execution& execution = task.execution();
  const OnTheSide on_the_side(task.model(), execution);
  execution.engine_of = [&](const QuantLayer& layer) {
    const auto observer = observers.find(&layer);
    return observer == observers.end() ? execution.engine : observed(execution.engine, observer->second);
  };
  task.repeat_loss().backward();
  const torch::NoGradGuard no_grad;
  const double unit = 24 * rate * squared_gradient(task.model().parameters()).item<double>();
  std::vector<LayerFigures> result;
  for (const QuantLayer* layer : layers) {
    if (const auto observer = observers.find(layer); observer != observers.end())
      result.push_back(
          observer->second->figures(layer->layer_name(), static_cast<double>(task.items_per_step()), unit));
  }
  return result;
}

}  // namespace lowtide
