#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

#include "lowtide/base/cuda_launch.h"

namespace lowtide {

void check_launch(const char* kernel) {
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess)
    throw std::runtime_error("CUDA: " + std::string(cudaGetErrorString(status)) + ", at the launch of " +
                             kernel);
}

std::size_t most_shared_bytes() {
  constexpr int kDeclared = 16;  // by the kernels that ask for the most
  int device = 0, bytes = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) != cudaSuccess)
    return 0;
  return static_cast<std::size_t>(bytes - kDeclared);
}

}  // namespace lowtide
