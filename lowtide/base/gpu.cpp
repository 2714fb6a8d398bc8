#include "lowtide/base/gpu.h"

#include <fmt/format.h>

#include "lowtide/base/error.h"
#include "lowtide/base/machine_error.h"
#if defined(LOWTIDE_WITH_CUDA)
#include <ATen/ATen.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#endif

namespace lowtide {

#if defined(LOWTIDE_WITH_CUDA)

namespace {

// Of a process by itself: its context, kernels, and what cuBLAS and cuDNN load.
constexpr double kOfCudaItself = 1.0 * (1 << 30);

}  // namespace

void expect_gpu() {
  try {
    c10::cuda::device_count_ensure_non_zero();
  } catch (const c10::Error& error) {
    const auto what = machine_error(error);
    throw UserError(fmt::format("device 'cuda': {}", what ? *what : error.what_without_backtrace()));
  }
}

void limit_gpu_memory(double share) {
  if (share >= 1) return;
  at::empty({1}, at::kCUDA);  // the allocator begins with the first tensor
  std::size_t free = 0, total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  const double all = static_cast<double>(total), fraction = share - kOfCudaItself / all;
  if (fraction <= 0)
    throw UserError(
        fmt::format("gpu-memory is {}, which is {:.1f} GiB of this GPU's; expected more than {:.1f} GiB, "
                    "which CUDA takes itself",
                    share, share * all / (1 << 30), kOfCudaItself / (1 << 30)));
  c10::cuda::CUDACachingAllocator::setMemoryFraction(fraction, c10::cuda::current_device());
}

#else

void expect_gpu() {
  throw UserError(
      "device 'cuda': this build has no CUDA; use --device cpu, or build it with scripts/build-cuda.sh");
}
void limit_gpu_memory(double /*share*/) {}

#endif

}  // namespace lowtide
