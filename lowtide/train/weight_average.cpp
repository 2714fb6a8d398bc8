#include "lowtide/train/weight_average.h"

#include "lowtide/base/whole_number.h"
#include "lowtide/train/update.h"

namespace lowtide {

WeightAverage::WeightAverage(torch::nn::Module& model, std::int64_t first_step, std::int64_t every)
    : model_(model),
      first_step_(first_step),
      every_(every),
      count_(
          torch::zeros({}, torch::TensorOptions(torch::kInt64).device(model.parameters().at(0).device()))) {}

void WeightAverage::start() {
  for (const auto& item : model_.named_parameters())
    mean_.emplace_back(item.key(), torch::zeros_like(item.value()));
}

void WeightAverage::observe(std::int64_t steps_done, const torch::Tensor& halted) {
  if (steps_done <= first_step_ || (steps_done - first_step_) % every_ != 0) return;
  const torch::NoGradGuard no_grad;
  if (mean_.empty()) start();
  masked::count(count_, halted);
  const torch::Tensor share = count_.to(torch::kDouble).reciprocal().to(torch::kFloat);
  const auto parameters = model_.parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const torch::Tensor& mean = mean_[i].second;
    masked::assign(mean, mean.lerp(parameters[i], share), halted);
  }
}

void WeightAverage::copy_to_model() {
  const torch::NoGradGuard no_grad;
  const auto parameters = model_.parameters();
  const NamedTensors mean = tensors();
  for (std::size_t i = 0; i < mean.size(); ++i) parameters[i].copy_(mean[i].second);
}

NamedTensors WeightAverage::tensors() const { return count() > 0 ? mean_ : NamedTensors{}; }

void WeightAverage::restore(const Json& state) {
  count_.fill_(whole_number(state, "count", 0, kMostCounted, "state of averaging"));
  if (count() > 0 && mean_.empty()) start();
}

}  // namespace lowtide
