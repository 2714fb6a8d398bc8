#include "lowtide/engine/cuda.h"

#include "lowtide/engine/cuda/fused_conv_norm.h"

namespace lowtide {

std::vector<std::shared_ptr<const PreparedConv>> CudaEngine::prepare_convs(
    const std::vector<ConvWeight>& weights, bool keeps) const {
  return cuda::prepare(weights, keeps);
}

std::unique_ptr<ConvNorm> CudaEngine::conv_norm(const ConvNormCall& call) const {
  auto conv = std::dynamic_pointer_cast<const cuda::PreparedCudaConv>(call.conv);
  if (conv == nullptr) return Engine::conv_norm(call);
  return std::make_unique<cuda::FusedConvNorm>(*this, call, std::move(conv), aside_);
}

}  // namespace lowtide
