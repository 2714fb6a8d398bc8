#include "lowtide/train/update_cuda.h"

#include <algorithm>

#include "lowtide/base/cuda_stream.h"
#include "lowtide/base/error.h"
#include "lowtide/train/update_layout.h"

namespace lowtide::cuda {
namespace {

struct Target {
  const UpdateKernels& kernels;
  void* stream;
};

Target target_on(at::Device device) {
#if defined(LOWTIDE_WITH_CUDA)
  if (device.is_cuda()) return {kCudaUpdate, current_cuda_stream(device.index())};
#endif
  invariant_failed("a device with kernels for an optimiser", __FILE__, __LINE__, device.str());
}

// What the kernels are given, and copies of gradients that are laid out otherwise than their parameters. These
// may go as soon as the kernels are launched: what gets their memory comes later on the same stream.
struct Arrays {
  std::vector<ParameterArrays> list;
  std::vector<at::Tensor> copies;
};

Arrays arrays_of(const std::vector<UpdatedParameter>& parameters) {
  Arrays result;
  result.list.reserve(parameters.size());
  for (const UpdatedParameter& parameter : parameters) {
    const at::Tensor gradient = laid_out_as(parameter.value, parameter.gradient);
    if (!gradient.is_same(parameter.gradient)) result.copies.push_back(gradient);
    ParameterArrays arrays;
    arrays.gradient = gradient.data_ptr<float>();
    arrays.parameter = parameter.value.data_ptr<float>();
    for (int i = 0; i < 2; ++i) {
      if (parameter.state[i].defined()) arrays.state[i] = state_of(parameter.value, parameter.state[i]);
    }
    arrays.n = parameter.value.numel();
    arrays.decays = parameter.decays;
    result.list.push_back(arrays);
  }
  return result;
}

}  // namespace

bool has_update_kernels([[maybe_unused]] at::Device device) {
#if defined(LOWTIDE_WITH_CUDA)
  return device.is_cuda();
#else
  return false;
#endif
}

StepControl control_of(double rate, const at::Tensor& halted, const StepParameters* on_device) {
  return {.halted = halted.data_ptr<bool>(), .rate = rate, .parameters = on_device};
}

void update(const SgdArguments& by, const std::vector<UpdatedParameter>& parameters) {
  if (parameters.empty()) return;
  const Arrays arrays = arrays_of(parameters);
  const Target target = target_on(parameters[0].value.device());
  target.kernels.sgd(by, arrays.list, target.stream);
}

void update(AdamArguments by, const at::Tensor& steps, const std::vector<UpdatedParameter>& parameters) {
  const Arrays arrays = arrays_of(parameters);
  const at::Tensor factors =
      at::empty({static_cast<std::int64_t>(sizeof(AdamFactors))}, steps.options().dtype(at::kByte));
  by.steps = steps.data_ptr<std::int64_t>();
  by.factors = static_cast<AdamFactors*>(factors.data_ptr());
  const Target target = target_on(steps.device());
  target.kernels.adam(by, arrays.list, target.stream);
}

bool can_clip(const std::vector<at::Tensor>& gradients) {
  return !gradients.empty() &&
         std::all_of(gradients.begin(), gradients.end(), [](const at::Tensor& gradient) {
           return has_update_kernels(gradient.device()) && gradient.scalar_type() == at::kFloat &&
                  gradient.is_non_overlapping_and_dense();
         });
}

at::Tensor clip(const std::vector<at::Tensor>& gradients, double limit) {
  std::vector<ParameterArrays> list(gradients.size());
  std::int64_t chunks = 0;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    list[i].gradient = gradients[i].data_ptr<float>();
    list[i].n = gradients[i].numel();
    chunks += list[i].chunks();
  }
  const at::TensorOptions options = gradients.at(0).options();
  const at::Tensor partial = at::empty({chunks}, options.dtype(at::kDouble));
  at::Tensor norm = at::empty({}, options);
  const Target target = target_on(options.device());
  target.kernels.norm({.partial = partial.data_ptr<double>(), .norm = norm.data_ptr<float>()}, list,
                      target.stream);
  if (limit > 0) target.kernels.clip({.norm = norm.data_ptr<float>(), .limit = limit}, list, target.stream);
  return norm;
}

}  // namespace lowtide::cuda
