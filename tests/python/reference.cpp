// What the tests of the Python package compare with: a network of lowtide's own, and the two of its operations that PyTorch
// rounds otherwise.
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <cmath>
#include <map>
#include <string>

#include "lowtide/base/torch.h"
#include "lowtide/engine/cpu/normalisation.h"
#include "lowtide/models/image_model.h"
#include "lowtide/nn/pixel_mean.h"
#include "lowtide/nn/quant_layer.h"
#include "lowtide/ranks/ranks.h"
#include "lowtide/train/layer_look.h"

namespace lowtide {
namespace {

using Tensors = std::map<std::string, at::Tensor>;

struct StepOf {
  std::shared_ptr<ImageModel> model;
  std::shared_ptr<Execution> execution;
};

StepOf step_of(const std::string& name, const Tensors& weights, std::int64_t channels,
               std::pair<int, int> bits, std::uint64_t seed, std::int64_t step, const std::string& engine) {
  const auto model = image_model(name).make(channels, 10);
  const auto execution = std::make_shared<Execution>();
  execution->engine = make_engine(engine);
  execution->bits = {bits.first, bits.second};
  execution->seed = seed;
  execution->step = step;
  attach_layers(*model, execution, LayerRules(model->default_rules()));
  const at::NoGradGuard no_grad;
  for (auto& item : model->named_parameters()) item.value().copy_(weights.at(item.key()));
  return {model, execution};
}

// How sensitive layers are in a step, by their names: those that `waterfill` chooses for.
std::map<std::string, double> image_model_sensitivities(const std::string& name, const Tensors& weights,
                                                        const at::Tensor& images, const at::Tensor& labels,
                                                        std::pair<int, int> bits, std::uint64_t seed,
                                                        std::int64_t step, const std::string& engine,
                                                        double rate) {
  const auto [model, execution] = step_of(name, weights, images.size(1), bits, seed, step, engine);
  std::vector<Ledger::Layer> layers;
  for (const QuantLayer* layer : quant_layers(*model)) layers.push_back({layer->layer_name(), 0, {}});
  LayerLook look(*execution, layer_choices(*model, layers), {});
  at::cross_entropy_loss(model->forward(images), labels).backward();
  look.take_gradients(chosen_weights(*model, layers), model->parameters());
  const std::vector<double> all = look.sensitivities(*alone(), rate, images.size(0));
  std::map<std::string, double> chosen;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (std::isfinite(all[i])) chosen[layers[i].name] = all[i];
  }
  return chosen;
}

// Logits, and the gradients of the cross entropy by the names of the parameters.
Tensors image_model_gradients(const std::string& name, const Tensors& weights, const at::Tensor& images,
                              const at::Tensor& labels, std::pair<int, int> bits, std::uint64_t seed,
                              std::int64_t step, const std::string& engine) {
  const auto [model, execution] = step_of(name, weights, images.size(1), bits, seed, step, engine);
  const at::Tensor logits = model->forward(images);
  at::cross_entropy_loss(logits, labels).backward();
  Tensors result{{"logits", logits.detach()}};
  for (const auto& item : model->named_parameters()) result[item.key()] = item.value().grad();
  return result;
}

// The normalisation of a trunk on a CPU, in training.
class NormFunction : public torch::autograd::Function<NormFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weight, const at::Tensor& bias) {
    const NormParameters parameters{.weight = weight.detach(),
                                    .bias = bias.detach(),
                                    .running_mean = at::zeros_like(weight),
                                    .running_variance = at::ones_like(weight),
                                    .uses_batch = true};
    const at::Tensor y = contiguous(x);
    const cpu::ChannelStatistics statistics = cpu::ChannelMoments().of(y);
    const auto norm = std::make_shared<cpu::Normalisation>(
        cpu::start_normalisation(parameters, /*relu=*/false, y.numel() / y.size(1), &statistics));
    at::Tensor result = cpu::map_and_add(y, norm->map, {}).value;
    backward_of(context) = [y, norm](const at::Tensor& gradient) {
      return cpu::MapBackward(y, norm->map, norm->scatter, {})
          .of(contiguous(gradient), /*wants_residual=*/false);
    };
    return result;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const cpu::MapGradients result = backward_of(context)(gradients[0]);
    return {result.input, result.weight, result.bias};
  }

 private:
  using Backward = std::function<cpu::MapGradients(const at::Tensor&)>;
  struct Kept : torch::CustomClassHolder {
    Backward backward;
  };
  static Backward& backward_of(torch::autograd::AutogradContext* context) {
    auto& kept = context->saved_data["kept"];
    if (kept.isNone()) kept = c10::IValue::make_capsule(c10::make_intrusive<Kept>());
    return c10::static_intrusive_pointer_cast<Kept>(kept.toCapsule())->backward;
  }
};

}  // namespace
}  // namespace lowtide

PYBIND11_MODULE(_reference, module) {
  module.def("image_model_gradients", &lowtide::image_model_gradients,
             pybind11::call_guard<pybind11::gil_scoped_release>());
  module.def("image_model_sensitivities", &lowtide::image_model_sensitivities,
             pybind11::call_guard<pybind11::gil_scoped_release>());
  module.def("batch_norm", [](const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
    return lowtide::NormFunction::apply(x, weight, bias);
  });
  module.def("pixel_mean", &lowtide::pixel_mean);
}
