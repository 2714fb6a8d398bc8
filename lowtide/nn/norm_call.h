#pragma once

#include <torch/custom_class.h>

#include <vector>

#include "lowtide/nn/layer_call.h"
#include "lowtide/nn/norm_kernels.h"

namespace lowtide {

// A normalisation (and ReLU) of a convolution's output whose statistics are taken and whose running ones are moved, but
// which is not carried out yet: the layer that reads it decides how. Holds what its backward pass needs.
struct NormCall : torch::CustomClassHolder {
  at::Tensor input;
  c10::intrusive_ptr<ConvCall> producer;  // of the input
  at::Tensor weight, bias;
  cpu::ChannelMap map;
  cpu::ChannelScatter scatter;
  Range range;          // of the result, without a residual
  at::Tensor positive;  // see cpu::MappedSum

  // Gives the input away. It is kept for the backward pass, unless it is cheaper computed again from its codes.
  at::Tensor take_input();

  // For whoever computes the gradient that backward() will get.
  ImageWatcher* gradient_watcher();
  cpu::MapGradients backward(const at::Tensor& gradient, bool wants_residual);

 private:
  std::unique_ptr<cpu::MapBackward> back_;
};

}  // namespace lowtide
