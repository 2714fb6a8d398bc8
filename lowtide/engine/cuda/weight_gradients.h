#pragma once

#include <vector>

#include "lowtide/engine/cuda/kernels.h"
#include "lowtide/engine/cuda/side_stream.h"

namespace lowtide::cuda {

// The weight gradients of a trunk's backward pass: on a second stream beside it; those of small images all at once, at its end.
class WeightGradients {
 public:
  // `reads`: tensors that the arguments lead into.
  void add(const WeightGradientArguments& arguments, std::vector<at::Tensor> reads);
  // Launches what is left. What is launched on the current stream after this sees all gradients.
  void finish();
  // Forgets what a backward pass has left that ended in an error.
  void drop();

 private:
  SideStream aside_;
  std::vector<WeightGradientArguments> of_images_;
  std::vector<at::Tensor> reads_;  // of those
};

}  // namespace lowtide::cuda
