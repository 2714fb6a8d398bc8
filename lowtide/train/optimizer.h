#pragma once

#include <memory>
#include <vector>

#include "lowtide/base/json.h"
#include "lowtide/base/torch.h"
#include "lowtide/nn/named_tensors.h"
#include "lowtide/recipe/recipe.h"

namespace lowtide {

// Changes parameters by their gradients. The state is plain tensors with names, saved and restored exactly.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // One step at the given rate. Where `halted` (one bool) is true nothing changes: the check is made on the
  // device, so that no host waits for it.
  virtual void step(double rate, const torch::Tensor& halted) = 0;

  virtual NamedTensors tensors() const = 0;
  virtual Json state() const { return Json::object(); }
  virtual void restore(const Json&) {}
};

// UserError where the recipe's decay-layers name none of the model's.
std::unique_ptr<Optimizer> make_optimizer(const TrainingOptions& training, torch::nn::Module& model);

// Scales gradients so that their joint norm is at most `limit` (0: any), and returns the norm before that:
// one element on the device. It is finite only if every gradient is.
torch::Tensor clip_gradients(const std::vector<torch::Tensor>& parameters, double limit);

}  // namespace lowtide
