#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

namespace lowtide {

struct NormActOptions {
  std::int64_t channels = 0;
  bool relu = true;
};

// What follows a convolution: batch normalisation, then the residual where there is one, then ReLU unless the
// block ends in a plain sum. All fp32.
class NormActImpl : public torch::nn::Module {
 public:
  explicit NormActImpl(const NormActOptions& options);
  at::Tensor forward(const at::Tensor& x, const at::Tensor& residual = {});

  // From here on the running statistics are plain means over the batches seen, starting with none: how they
  // are estimated anew for averaged weights.
  void start_re_estimation();
  void end_re_estimation();

  const NormActOptions options;
  at::Tensor weight, bias, running_mean, running_variance;

 private:
  double momentum();

  bool re_estimating_ = false;
  std::int64_t batches_seen_ = 0;
};
TORCH_MODULE(NormAct);

}  // namespace lowtide
