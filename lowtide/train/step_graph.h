#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "lowtide/base/torch.h"
#include "lowtide/nn/execution.h"

namespace lowtide {

// Steps of training on a GPU as one CUDA graph: captured once and replayed, so that thousands of launches become one. What
// changes from step to step (bits, noise, rate) lies in device memory, and one capture serves a whole cyclic run; another is
// made only where a layer's codes change their type (bytes, 32-bit integers or floats), or a batch its shape. Replayed or not,
// a step gives the same bits. On a CPU, and in a build without CUDA, steps are made as they are.
class StepGraph {
 public:
  // For the layers of `model`, which share `execution` and read its parameters on the device from now on.
  StepGraph(torch::nn::Module& model, Execution& execution, const torch::Device& device);
  ~StepGraph();
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;

  // Whether steps may be captured here at all.
  static bool is_possible(const Execution& execution, const torch::Device& device);

  // One step at the execution's bits and this rate. `work` launches all of it, reads nothing on the host, and leaves its
  // results in the same tensors whenever it is replayed. Steps on batches of one shape, which a number tells from others,
  // launch the same work.
  void run(double rate, const std::function<void()>& work, std::int64_t shape = 0);

  // Bits, step and rate, in device memory.
  const StepParameters* parameters() const;
  std::int64_t captures() const;
  std::int64_t kernels() const;  // of the graph that ran last; 0 where none did

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lowtide
