#pragma once

#include <cstdint>

namespace lowtide {

// What changes from one step of training to the next and kernels on a GPU read: it lies in device memory, so that a step
// that was captured once can be replayed with other bits, other noise and another rate. No torch, for nvcc.
struct StepParameters {
  // The whole is handed to a kernel by value, whose arguments have room for 4 KiB.
  static constexpr std::uint32_t kLayers = 1024;

  std::int64_t step = 0;                 // of the noise
  double rate = 0;                       // of the optimiser
  std::uint8_t forward_bits[kLayers]{};  // by a layer's number; 0: fp32
  std::uint8_t backward_bits[kLayers]{};
};

// Writes them on the stream (a cudaStream_t). Only in builds with CUDA.
void write_step_parameters(const StepParameters& from, StepParameters* on_device, void* stream);

}  // namespace lowtide
