#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

#include "lowtide/engine/conv_norm.h"

namespace lowtide {

struct BatchNormOptions {
  std::int64_t channels = 0;
  bool frozen = false;  // uses and keeps its running statistics in training too; its parameters are buffers
};

// The parameters and running statistics of a batch normalisation over N, H and W. A trunk carries it out, together with the
// convolution before it.
class BatchNormImpl : public torch::nn::Module {
 public:
  explicit BatchNormImpl(const BatchNormOptions& options);

  // For one call, which counts as a batch where running statistics are re-estimated.
  NormParameters start_call();

  // From here on the running statistics are plain means over the batches seen, starting with none: how they
  // are estimated anew for averaged weights, and once for random weights whose normalisation is then frozen.
  void start_re_estimation();
  void end_re_estimation();

  const BatchNormOptions options;
  at::Tensor weight, bias, running_mean, running_variance;

 private:
  double momentum();

  bool re_estimating_ = false;
  std::int64_t batches_seen_ = 0;
};
TORCH_MODULE(BatchNorm);

}  // namespace lowtide
