#include "lowtide/train/weight_average.h"

#include "lowtide/base/whole_number.h"

namespace lowtide {

WeightAverage::WeightAverage(torch::nn::Module& model, std::int64_t first_step, std::int64_t every)
    : model_(model), first_step_(first_step), every_(every) {}

void WeightAverage::start() {
  for (const auto& item : model_.named_parameters())
    mean_.emplace_back(item.key(), torch::zeros_like(item.value()));
}

void WeightAverage::observe(std::int64_t steps_done) {
  if (steps_done <= first_step_ || (steps_done - first_step_) % every_ != 0) return;
  const torch::NoGradGuard no_grad;
  if (mean_.empty()) start();
  ++count_;
  const auto parameters = model_.parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    mean_[i].second.lerp_(parameters[i], 1.0 / static_cast<double>(count_));
  }
}

void WeightAverage::copy_to_model() {
  const torch::NoGradGuard no_grad;
  const auto parameters = model_.parameters();
  for (std::size_t i = 0; i < mean_.size(); ++i) parameters[i].copy_(mean_[i].second);
}

NamedTensors WeightAverage::tensors() const { return mean_; }

void WeightAverage::restore(const Json& state) {
  count_ = whole_number(state, "count", 0, kMostCounted, "state of averaging");
  if (count_ > 0 && mean_.empty()) start();
}

}  // namespace lowtide
