#pragma once

#include <c10/core/Device.h>

#if defined(LOWTIDE_WITH_CUDA)
#include <c10/cuda/CUDAStream.h>
#endif

namespace lowtide {

#if defined(LOWTIDE_WITH_CUDA)
inline constexpr bool kWithCuda = true;
#else
inline constexpr bool kWithCuda = false;
#endif

// The stream that work on this device goes to now (-1: on the device in use), as torch-free kernels take it. Nothing in a
// build without CUDA.
inline void* current_cuda_stream([[maybe_unused]] c10::DeviceIndex device = -1) {
#if defined(LOWTIDE_WITH_CUDA)
  return c10::cuda::getCurrentCUDAStream(device).stream();
#else
  return nullptr;
#endif
}

}  // namespace lowtide
