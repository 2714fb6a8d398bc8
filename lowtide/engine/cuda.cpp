#include "lowtide/engine/cuda.h"

#include <ATen/cuda/CUDAContext.h>
#include <fmt/format.h>

#include "lowtide/base/error.h"
#include "lowtide/engine/cuda/fused_conv_norm.h"

namespace lowtide {

CudaEngine::CudaEngine() {
  constexpr int kFirstMajor = 8;  // asynchronous copies, byte products of 32 columns
  if (!at::cuda::is_available()) return;
  const cudaDeviceProp& gpu = *at::cuda::getCurrentDeviceProperties();
  if (gpu.major < kFirstMajor)
    throw UserError(fmt::format(
        "engine 'cuda' needs a GPU of compute capability {}.0, {} has {}.{}; use --engine simulated",
        kFirstMajor, gpu.name, gpu.major, gpu.minor));
}

std::vector<std::shared_ptr<const PreparedConv>> CudaEngine::prepare_convs(
    const std::vector<ConvWeight>& weights, bool keeps) const {
  return cuda::prepare(weights, keeps);
}

bool CudaEngine::has_kernels(const ConvWeight& conv) const { return cuda::has_kernels(conv); }

std::unique_ptr<ConvNorm> CudaEngine::conv_norm(const ConvNormCall& call) const {
  auto conv = std::dynamic_pointer_cast<const cuda::PreparedCudaConv>(call.conv);
  if (conv == nullptr) return Engine::conv_norm(call);
  return std::make_unique<cuda::FusedConvNorm>(*this, call, std::move(conv), aside_);
}

}  // namespace lowtide
