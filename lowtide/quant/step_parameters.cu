#include <cuda_runtime.h>

#include "lowtide/base/cuda_launch.h"
#include "lowtide/quant/step_parameters.h"

namespace lowtide {
namespace {

__global__ void write(StepParameters from, StepParameters* to) {
  if (threadIdx.x == 0) {
    to->step = from.step;
    to->rate = from.rate;
  }
  for (unsigned i = threadIdx.x; i < StepParameters::kLayers; i += blockDim.x) {
    to->forward_bits[i] = from.forward_bits[i];
    to->backward_bits[i] = from.backward_bits[i];
  }
}

}  // namespace

void write_step_parameters(const StepParameters& from, StepParameters* on_device, void* stream) {
  write<<<1, 256, 0, static_cast<cudaStream_t>(stream)>>>(from, on_device);
  check_launch("a step's parameters");
}

}  // namespace lowtide
