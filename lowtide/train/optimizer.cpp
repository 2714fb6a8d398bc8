#include "lowtide/train/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lowtide/base/error.h"
#include "lowtide/base/whole_number.h"
#include "lowtide/schedule/layer_rules.h"
#include "lowtide/train/update.h"

namespace lowtide {
namespace {

// A layer's name, such as layer0, or that of its parameter, layer0.weight.
bool names(const std::string& pattern, const std::string& parameter) {
  return glob_matches(pattern, parameter) ||
         glob_matches(pattern, std::string_view(parameter).substr(0, parameter.rfind('.')));
}

// The weight decay of a parameter: the recipe's, unless that is for other layers.
double decay_of(const TrainingOptions& training, const std::string& parameter) {
  const auto& patterns = training.decay_layers;
  const bool decays =
      patterns.empty() || std::any_of(patterns.begin(), patterns.end(),
                                      [&](const std::string& pattern) { return names(pattern, parameter); });
  return decays ? training.weight_decay : 0;
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

class Sgd final : public Optimizer {
 public:
  Sgd(const TrainingOptions& training, torch::nn::Module& model, Halting halting)
      : momentum_(training.momentum), halting_(halting) {
    for (const auto& item : model.named_parameters()) {
      if (!item.value().requires_grad()) continue;
      parameters_.push_back(item.value());
      decay_.push_back(decay_of(training, item.key()));
      velocity_.emplace_back(item.key() + ".momentum", torch::zeros_like(item.value()));
    }
  }

  void step(double rate, const torch::Tensor& halted) override {
    const torch::NoGradGuard no_grad;
    if (halting_ == Halting::kOnHost && halted.item<bool>()) return;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const torch::Tensor &parameter = parameters_[i], &velocity = velocity_[i].second;
      const SgdUpdate by{.rate = rate, .momentum = momentum_, .decay = decay_[i]};
      if (halting_ == Halting::kOnHost) {
        cpu::update(by, parameter, parameter.grad(), velocity);
      } else {
        masked::update(by, halted, parameter, parameter.grad(), velocity);
      }
    }
  }

  NamedTensors tensors() const override { return velocity_; }

 private:
  double momentum_;
  Halting halting_;
  std::vector<torch::Tensor> parameters_;
  std::vector<double> decay_;
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
        apart_(training.optimizer == "adamw"),
        halting_(halting),
        steps_(torch::zeros({}, torch::TensorOptions(torch::kInt64).device(device_of(model)))) {
    for (const auto& item : model.named_parameters()) {
      if (!item.value().requires_grad()) continue;
      parameters_.push_back(item.value());
      decay_.push_back(decay_of(training, item.key()));
      first_.emplace_back(item.key() + ".first_moment", torch::zeros_like(item.value()));
      second_.emplace_back(item.key() + ".second_moment", torch::zeros_like(item.value()));
    }
  }

  void step(double rate, const torch::Tensor& halted) override {
    const torch::NoGradGuard no_grad;
    if (halting_ == Halting::kOnHost && halted.item<bool>()) return;
    masked::count(steps_, halted);
    const masked::MomentCorrections corrections = masked::moment_corrections(beta1_, beta2_, steps_);
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const torch::Tensor &parameter = parameters_[i], &first = first_[i].second, &second = second_[i].second;
      const AdamUpdate by{.rate = rate,
                          .beta1 = beta1_,
                          .beta2 = beta2_,
                          .epsilon = kEpsilon,
                          .decay = apart_ ? 0 : decay_[i],
                          .shrinkage = apart_ && parameter.dim() > 1 ? rate * decay_[i] : 0};
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

  double beta1_, beta2_;
  bool apart_;
  Halting halting_;
  torch::Tensor steps_;  // one number, where the parameters are
  std::vector<torch::Tensor> parameters_;
  std::vector<double> decay_;
  NamedTensors first_, second_;
};

// libtorch cuts a sum that has one result by the number of threads. On a CPU large gradients are summed in pieces of a fixed
// size, so that the norm does not depend on it.
torch::Tensor norm_of(const torch::Tensor& gradient) {
  constexpr std::int64_t kPiece = 4096;
  const std::int64_t whole = gradient.numel() / kPiece * kPiece;
  if (!gradient.device().is_cpu() || whole == 0 || !gradient.is_non_overlapping_and_dense())
    return gradient.norm();
  const torch::Tensor row = gradient.as_strided({gradient.numel()}, {1});
  const torch::Tensor pieces = row.narrow(0, 0, whole).view({-1, kPiece}).norm(2, {1});
  return torch::cat({pieces, row.narrow(0, whole, gradient.numel() - whole)}).norm();
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const TrainingOptions& training, torch::nn::Module& model) {
  return make_optimizer(training, model, device_of(model).is_cpu() ? Halting::kOnHost : Halting::kMasked);
}

std::unique_ptr<Optimizer> make_optimizer(const TrainingOptions& training, torch::nn::Module& model, Halting halting) {
  check_decay_layers(training, model);
  if (training.optimizer != "sgd") return std::make_unique<Adam>(training, model, halting);
  return std::make_unique<Sgd>(training, model, halting);
}

torch::Tensor clip_gradients(const std::vector<torch::Tensor>& parameters, double limit) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> norms;
  norms.reserve(parameters.size());
  for (const torch::Tensor& parameter : parameters) {
    if (parameter.requires_grad()) norms.push_back(norm_of(parameter.grad()));
  }
  torch::Tensor norm = torch::stack(norms).norm();
  if (limit > 0) {
    const torch::Tensor within = (limit / (norm + 1e-6)).clamp_max(1.0);
    const torch::Tensor factor = torch::where(norm.isfinite(), within, torch::ones_like(within));
    for (const torch::Tensor& parameter : parameters) {
      if (parameter.requires_grad()) parameter.grad().mul_(factor);
    }
  }
  return norm;
}

}  // namespace lowtide
