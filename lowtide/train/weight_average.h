#pragma once

#include <cstdint>

#include "lowtide/base/json.h"
#include "lowtide/base/torch.h"
#include "lowtide/train/optimizer.h"

namespace lowtide {

// The mean of the weights at several steps (Izmailov et al. 2018, stochastic weight averaging).
class WeightAverage {
 public:
  WeightAverage(torch::nn::Module& model, std::int64_t first_step, std::int64_t every);

  // To be told after each step how many are done; takes the weights where it is time. Nothing changes where `halted` (one
  // bool on the model's device) is true; the host does not wait for it.
  void observe(std::int64_t steps_done, const torch::Tensor& halted);

  std::int64_t count() const { return count_.item<std::int64_t>(); }

  // The average becomes the model's weights; statistics and ranges are then those of other weights.
  void copy_to_model();

  // None before the first weights were taken: a run without averaging saves nothing.
  NamedTensors tensors() const;
  Json state() const { return {{"count", count()}}; }
  void restore(const Json& state);

 private:
  void start();

  torch::nn::Module& model_;
  std::int64_t first_step_, every_;
  torch::Tensor count_;  // one number on the model's device
  NamedTensors mean_;
};

}  // namespace lowtide
