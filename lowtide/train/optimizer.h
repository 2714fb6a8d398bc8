#pragma once

#include <memory>
#include <vector>

#include "lowtide/base/json.h"
#include "lowtide/base/torch.h"
#include "lowtide/nn/named_tensors.h"
#include "lowtide/recipe/recipe.h"

namespace lowtide {

struct StepParameters;

// Changes parameters by their gradients. The state is plain tensors with names, saved and restored exactly.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // One step at the given rate. Where `halted` (one bool on the parameters' device) is true nothing changes, neither
  // parameters nor state. On a GPU the rate is read from `on_device`, where that is given, when the step runs: so a
  // captured step is replayed at another.
  virtual void step(double rate, const torch::Tensor& halted, const StepParameters* on_device = nullptr) = 0;

  virtual NamedTensors tensors() const = 0;
  virtual Json state() const { return Json::object(); }
  virtual void restore(const Json&) {}
};

// How a step heeds `halted`. On the host: the flag is read, then a parameter is changed in one pass; for a CPU, where
// reading waits for nothing. Masked: every change is made or not on the device, and the host never waits; with CUDA a few
// kernels change all parameters.
enum class Halting { kOnHost, kMasked };

// The way of halting is that of the parameters' device, unless it is given (masked works on a CPU too). UserError where
// the recipe's decay-layers name none of the model's.
std::unique_ptr<Optimizer> make_optimizer(const TrainingOptions& training, torch::nn::Module& model);
std::unique_ptr<Optimizer> make_optimizer(const TrainingOptions& training, torch::nn::Module& model,
                                          Halting halting);

// Scales gradients so that their joint norm is at most `limit` (0: any), and returns the norm before that:
// one element on the device. It is finite only if every gradient is; where it is not, they stay as they are, and so tell
// where it began.
torch::Tensor clip_gradients(const std::vector<torch::Tensor>& parameters, double limit);

}  // namespace lowtide
