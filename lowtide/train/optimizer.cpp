#include "lowtide/train/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lowtide/base/error.h"
#include "lowtide/base/whole_number.h"
#include "lowtide/schedule/layer_rules.h"
#include "lowtide/train/update.h"
#include "lowtide/train/update_cuda.h"

namespace lowtide {
namespace {

// A layer's name, such as layer0, or that of its parameter, layer0.weight.
bool names(const std::string& pattern, const std::string& parameter) {
  return glob_matches(pattern, parameter) ||
         glob_matches(pattern, std::string_view(parameter).substr(0, parameter.rfind('.')));
}

// Whether the recipe's weight decay is for this parameter, or for other layers.
bool decays(const TrainingOptions& training, const std::string& parameter) {
  const auto& patterns = training.decay_layers;
  return patterns.empty() || std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
           return names(pattern, parameter);
         });
}

void check_decay_layers(const TrainingOptions& training, const torch::nn::Module& model) {
  const auto parameters = model.named_parameters();
  for (const std::string& pattern : training.decay_layers) {
    if (std::any_of(parameters.begin(), parameters.end(),
                    [&](const auto& item) { return names(pattern, item.key()); }))
      continue;
    throw UserError(
        fmt::format("decay-layers: '{}' matches no layer of the model; `lowtide cost` lists them", pattern));
  }
}

torch::Device device_of(const torch::nn::Module& model) { return model.parameters().at(0).device(); }

bool has_kernels(Halting halting, const torch::nn::Module& model) {
  return halting == Halting::kMasked && cuda::has_update_kernels(device_of(model));
}

void check_rate_is_known(const StepParameters* on_device) {
  LOWTIDE_CHECK(on_device == nullptr, "kernels on a GPU alone read the rate there");
}

class Sgd final : public Optimizer {
 public:
  Sgd(const TrainingOptions& training, torch::nn::Module& model, Halting halting)
      : momentum_(training.momentum),
        decay_(training.weight_decay),
        halting_(halting),
        has_kernels_(has_kernels(halting, model)) {
    for (const auto& item : model.named_parameters()) {
      if (!item.value().requires_grad()) continue;
      parameters_.push_back(item.value());
      decays_.push_back(decays(training, item.key()));
      velocity_.emplace_back(item.key() + ".momentum", torch::zeros_like(item.value()));
    }
  }

  void step(double rate, const torch::Tensor& halted, const StepParameters* on_device) override {
    const torch::NoGradGuard no_grad;
    if (has_kernels_) {
      step_by_kernels(cuda::control_of(rate, halted, on_device));
      return;
    }
    check_rate_is_known(on_device);
    if (halting_ == Halting::kOnHost && halted.item<bool>()) return;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const torch::Tensor &parameter = parameters_[i], &velocity = velocity_[i].second;
      const SgdUpdate by{.rate = rate, .momentum = momentum_, .decay = decays_[i] ? decay_ : 0};
      if (halting_ == Halting::kOnHost) {
        cpu::update(by, parameter, parameter.grad(), velocity);
      } else {
        masked::update(by, halted, parameter, parameter.grad(), velocity);
      }
    }
  }

  NamedTensors tensors() const override { return velocity_; }

 private:
  void step_by_kernels(const StepControl& control) {
    std::vector<cuda::UpdatedParameter> updated;
    updated.reserve(parameters_.size());
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      updated.push_back({parameters_[i], parameters_[i].grad(), {velocity_[i].second}, decays_[i]});
    cuda::update({.control = control, .momentum = momentum_, .decay = decay_}, updated);
  }

  double momentum_, decay_;
  Halting halting_;
  bool has_kernels_;
  std::vector<torch::Tensor> parameters_;
  std::vector<bool> decays_;
  NamedTensors velocity_;
};

// Kingma and Ba 2015, algorithm 1. The weight decay is added to the gradient; or (AdamW) it shrinks the weights by
// itself, those of products alone: biases and normalisations, which have one dimension, are left (Loshchilov and Hutter
// 2019; Devlin et al. 2019).
class Adam final : public Optimizer {
 public:
  Adam(const TrainingOptions& training, torch::nn::Module& model, Halting halting)
      : beta1_(training.betas[0]),
        beta2_(training.betas[1]),
        decay_(training.weight_decay),
        apart_(training.optimizer == "adamw"),
        halting_(halting),
        has_kernels_(has_kernels(halting, model)),
        steps_(torch::zeros({}, torch::TensorOptions(torch::kInt64).device(device_of(model)))) {
    for (const auto& item : model.named_parameters()) {
      if (!item.value().requires_grad()) continue;
      parameters_.push_back(item.value());
      decays_.push_back(decays(training, item.key()) && (!apart_ || item.value().dim() > 1));
      first_.emplace_back(item.key() + ".first_moment", torch::zeros_like(item.value()));
      second_.emplace_back(item.key() + ".second_moment", torch::zeros_like(item.value()));
    }
  }

  void step(double rate, const torch::Tensor& halted, const StepParameters* on_device) override {
    const torch::NoGradGuard no_grad;
    if (has_kernels_) {
      step_by_kernels(cuda::control_of(rate, halted, on_device));
      return;
    }
    check_rate_is_known(on_device);
    if (halting_ == Halting::kOnHost && halted.item<bool>()) return;
    masked::count(steps_, halted);
    const masked::MomentCorrections corrections = masked::moment_corrections(beta1_, beta2_, steps_);
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const torch::Tensor &parameter = parameters_[i], &first = first_[i].second, &second = second_[i].second;
      const double decay = decays_[i] ? decay_ : 0;
      const AdamUpdate by{.rate = rate,
                          .beta1 = beta1_,
                          .beta2 = beta2_,
                          .epsilon = kEpsilon,
                          .decay = apart_ ? 0 : decay,
                          .shrinkage = apart_ ? rate * decay : 0};
      if (halting_ == Halting::kOnHost) {
        cpu::update(by, steps_.item<std::int64_t>(), parameter, parameter.grad(), first, second);
      } else {
        masked::update(by, corrections, halted, parameter, parameter.grad(), first, second);
      }
    }
  }

  NamedTensors tensors() const override {
    NamedTensors all = first_;
    all.insert(all.end(), second_.begin(), second_.end());
    return all;
  }
  Json state() const override { return {{"steps", steps_.item<std::int64_t>()}}; }
  void restore(const Json& state) override {
    steps_.fill_(whole_number(state, "steps", 0, kMostCounted, "state of adam"));
  }

 private:
  static constexpr double kEpsilon = 1e-8;

  void step_by_kernels(const StepControl& control) {
    std::vector<cuda::UpdatedParameter> updated;
    updated.reserve(parameters_.size());
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      updated.push_back(
          {parameters_[i], parameters_[i].grad(), {first_[i].second, second_[i].second}, decays_[i]});
    }
    AdamArguments by;
    by.control = control;
    by.beta1 = beta1_;
    by.beta2 = beta2_;
    by.epsilon = kEpsilon;
    by.decay = decay_;
    by.apart = apart_;
    cuda::update(by, steps_, updated);
  }

  double beta1_, beta2_, decay_;
  bool apart_;
  Halting halting_;
  bool has_kernels_;
  torch::Tensor steps_;  // one number, where the parameters are
  std::vector<torch::Tensor> parameters_;
  std::vector<bool> decays_;
  NamedTensors first_, second_;
};

// libtorch cuts a sum that has one result by the number of threads. On a CPU large gradients are summed in chunks of a fixed
// size, so that the norm does not depend on it.
torch::Tensor norm_of(const torch::Tensor& gradient) {
  constexpr std::int64_t kChunk = 4096;
  const std::int64_t whole = gradient.numel() / kChunk * kChunk;
  if (!gradient.device().is_cpu() || whole == 0 || !gradient.is_non_overlapping_and_dense())
    return gradient.norm();
  const torch::Tensor row = gradient.as_strided({gradient.numel()}, {1});
  const torch::Tensor chunks = row.narrow(0, 0, whole).view({-1, kChunk}).norm(2, {1});
  return torch::cat({chunks, row.narrow(0, whole, gradient.numel() - whole)}).norm();
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const TrainingOptions& training, torch::nn::Module& model) {
  return make_optimizer(training, model, device_of(model).is_cpu() ? Halting::kOnHost : Halting::kMasked);
}

std::unique_ptr<Optimizer> make_optimizer(const TrainingOptions& training, torch::nn::Module& model,
                                          Halting halting) {
  check_decay_layers(training, model);
  if (training.optimizer != "sgd") return std::make_unique<Adam>(training, model, halting);
  return std::make_unique<Sgd>(training, model, halting);
}

torch::Tensor clip_gradients(const std::vector<torch::Tensor>& parameters, double limit) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> gradients, norms;
  for (const torch::Tensor& parameter : parameters) {
    if (parameter.requires_grad()) gradients.push_back(parameter.grad());
  }
  if (cuda::can_clip(gradients)) return cuda::clip(gradients, limit);
  norms.reserve(gradients.size());
  for (const torch::Tensor& gradient : gradients) norms.push_back(norm_of(gradient));
  torch::Tensor norm = torch::stack(norms).norm();
  if (limit > 0) {
    const torch::Tensor within = (limit / (norm + 1e-6)).clamp_max(1.0);
    const torch::Tensor factor = torch::where(norm.isfinite(), within, torch::ones_like(within));
    for (const torch::Tensor& gradient : gradients) gradient.mul_(factor);
  }
  return norm;
}

}  // namespace lowtide
