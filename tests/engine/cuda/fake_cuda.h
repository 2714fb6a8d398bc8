#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <string>
#include <vector>

// The part of CUDA's runtime that the kernels' host code calls, without a GPU: launches run nothing, they are written
// down, and refused where a GPU would refuse them. Linked in place of the runtime, so that a machine without a GPU can
// test how kernels are cut.

namespace lowtide::fake_cuda {

struct Gpu {
  const char* name;
  int multiprocessors, shared_bytes;  // of a block, where it asks for them
};
// CUDA C++ Programming Guide, table "Technical Specifications per Compute Capability".
inline constexpr Gpu kH200{"H200", 132, 227 * 1024}, kA100{"A100", 108, 163 * 1024},
    kDesktop{"a GPU of compute capability 8.9", 128, 99 * 1024};

struct Launch {
  std::string kernel;  // its mangled name
  dim3 grid, block;
  std::size_t shared_bytes;
};

// The GPU in use from now on; nothing was launched on it.
void use(const Gpu& gpu);
const std::vector<Launch>& launches();

}  // namespace lowtide::fake_cuda
