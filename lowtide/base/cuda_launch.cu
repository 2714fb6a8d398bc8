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

}  // namespace lowtide
