#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lowtide/base/torch.h"
#include "lowtide/cost/ledger.h"
#include "lowtide/nn/execution.h"
#include "lowtide/recipe/recipe.h"

// What all tasks do alike.

namespace lowtide {

// UserError where the recipe asks for a device that is not there.
torch::Device device_of(const RunningOptions& running);

// Whether CUDA multiplies floats as TF32, of all libtorch's products from now on. Without, its `simulated` is a reference.
void allow_tf32(bool allowed);

// Also allows TF32, and limits the GPU's memory, as `running` says. `seed`: of training.
std::shared_ptr<Execution> make_execution(const PrecisionOptions& precision, const RunningOptions& running,
                                          std::uint64_t seed);

// Attaches the model's layers to the execution by the model's own rules and then the recipe's (`layer_bits`). UserError for
// one of the recipe's that matches no layer; `name` is that of the model.
void attach_layers(torch::nn::Module& model, const std::shared_ptr<Execution>& execution,
                   const std::vector<std::string>& own_rules, const std::vector<std::string>& layer_bits,
                   const std::string& name);

// The layers that multiply, in the order in which they are called, with their MACs for one of `items` items: by one forward
// pass in full precision.
std::vector<Ledger::Layer> measure_layers(torch::nn::Module& model, Execution& execution, std::int64_t items,
                                          const std::function<void()>& forward);

// While it lives, counts what each of these layers multiplies.
class MacCounter {
 public:
  MacCounter(Execution& execution, const std::vector<Ledger::Layer>& layers);
  ~MacCounter() { execution_.listener = nullptr; }
  MacCounter(const MacCounter&) = delete;
  MacCounter& operator=(const MacCounter&) = delete;

  const std::vector<std::int64_t>& macs() const { return macs_; }

 private:
  Execution& execution_;
  std::vector<std::int64_t> macs_;
};

// Running statistics and ranges are what they were when it dies.
class KeptBuffers {
 public:
  explicit KeptBuffers(torch::nn::Module& model);
  ~KeptBuffers();
  KeptBuffers(const KeptBuffers&) = delete;
  KeptBuffers& operator=(const KeptBuffers&) = delete;

 private:
  std::vector<std::pair<torch::Tensor, torch::Tensor>> buffers_;
};

// While it lives, the model evaluates at these bits and nothing asks for gradients. With the execution's batch_statistics it
// stays in training's mode, and moves running statistics.
class Evaluating {
 public:
  Evaluating(torch::nn::Module& model, Execution& execution, Bits bits);
  ~Evaluating();
  Evaluating(const Evaluating&) = delete;
  Evaluating& operator=(const Evaluating&) = delete;

 private:
  torch::NoGradGuard no_grad_;
  torch::nn::Module& model_;
  Execution& execution_;
  StepBits training_bits_;
  bool was_training_;
};

}  // namespace lowtide
