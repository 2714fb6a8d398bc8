#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "lowtide/nn/activation.h"

namespace lowtide {

struct NormActOptions {
  std::int64_t channels = 0;
  bool relu = true;
  bool frozen = false;  // uses and keeps its running statistics in training too; its parameters are buffers
};

// What follows a convolution: batch normalisation, then the residual where there is one, then ReLU unless the
// block ends in a plain sum. All fp32.
class NormActImpl : public torch::nn::Module {
 public:
  explicit NormActImpl(const NormActOptions& options);
  Activation forward(const Activation& x, const Activation& residual = {});

  // For a single convolution to read: where the engine fuses, it makes codes of the result without its being written.
  Activation deferred(const Activation& x);

  // From here on the running statistics are plain means over the batches seen, starting with none: how they
  // are estimated anew for averaged weights, and once for random weights whose normalisation is then frozen.
  void start_re_estimation();
  void end_re_estimation();

  const NormActOptions options;
  at::Tensor weight, bias, running_mean, running_variance;

 private:
  bool uses_batch() const;  // normalises by the statistics of the batch
  bool fuses(const Activation& x) const;
  at::Tensor normalise(const at::Tensor& x);
  c10::intrusive_ptr<NormCall> start(const Activation& x);
  double momentum();

  bool re_estimating_ = false;
  std::int64_t batches_seen_ = 0;
};
TORCH_MODULE(NormAct);

}  // namespace lowtide
