#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "lowtide/train/update_kernels.h"

// An optimiser's tensors handed to CUDA kernels: all parameters at once, every number with the bits of cpu::update.

namespace lowtide::cuda {

// Whether this build has kernels for that device.
bool has_update_kernels(at::Device device);

struct UpdatedParameter {
  at::Tensor value, gradient;
  at::Tensor state[2];  // as in ParameterArrays
  bool decays = false;
};

StepControl control_of(double rate, const at::Tensor& halted, const StepParameters* on_device);
void update(const SgdArguments& by, const std::vector<UpdatedParameter>& parameters);
// `by.steps` and `by.factors` are taken from here: a count on the device, and room that lasts for the step.
void update(AdamArguments by, const at::Tensor& steps, const std::vector<UpdatedParameter>& parameters);

// clip_gradients, for gradients that are floats without gaps, in whatever order.
bool can_clip(const std::vector<at::Tensor>& gradients);
at::Tensor clip(const std::vector<at::Tensor>& gradients, double limit);

}  // namespace lowtide::cuda
