#pragma once

#include <vector>

#include "lowtide/engine/cuda/kernels.h"
#include "lowtide/engine/cuda/side_stream.h"

namespace lowtide::cuda {

// The weight gradients of a trunk's way back: on a second stream, beside it; those of small images at its end, all at once.
class WeightGradients {
 public:
  // `reads`: tensors that the arguments lead into.
  void add(const WeightGradientArguments& arguments, std::vector<at::Tensor> reads);
  // All gradients are there for whatever is launched on the current stream from now on.
  void finish();
  // What a way back that ended in an error has left.
  void drop();

 private:
  SideStream aside_;
  std::vector<WeightGradientArguments> of_images_;
  std::vector<at::Tensor> reads_;  // of those
};

}  // namespace lowtide::cuda
