#include "lowtide/engine/cuda.h"

#include <ATen/cuda/CUDAContext.h>
#include <fmt/format.h>

#include "lowtide/base/error.h"
#include "lowtide/engine/cuda/aggregate.h"
#include "lowtide/engine/cuda/byte_product.h"
#include "lowtide/engine/cuda/fused_conv_norm.h"
#include "lowtide/engine/cuda/matrix_product.h"
#include "lowtide/engine/cuda/single_conv.h"

namespace lowtide {

CudaEngine::CudaEngine() {
  constexpr int kFirstMajor = 8;  // asynchronous copies, byte products of 32 columns
  if (!at::cuda::is_available()) return;
  const cudaDeviceProp& gpu = *at::cuda::getCurrentDeviceProperties();
  if (gpu.major < kFirstMajor)
    throw UserError(fmt::format(
        "engine 'cuda' needs a GPU of compute capability {}.0, {} has {}.{}; use --engine simulated",
        kFirstMajor, gpu.name, gpu.major, gpu.minor));
  multiplies_bytes_ = cuda::can_multiply_bytes();
}

std::vector<std::shared_ptr<const PreparedConv>> CudaEngine::prepare_convs(
    const std::vector<ConvWeight>& weights, bool keeps) const {
  weight_gradients_.drop();
  return cuda::prepare(weights, keeps);
}

bool CudaEngine::has_kernels(const ConvWeight& conv, bool in_trunk) const {
  return cuda::has_kernels(conv) && (in_trunk || conv.groups == 1);
}

std::unique_ptr<ConvNorm> CudaEngine::conv_norm(const ConvNormCall& call) const {
  auto conv = std::dynamic_pointer_cast<const cuda::PreparedCudaConv>(call.conv);
  if (conv == nullptr) return Engine::conv_norm(call);
  return std::make_unique<cuda::FusedConvNorm>(*this, call, std::move(conv), weight_gradients_);
}

at::Tensor CudaEngine::conv2d(const Quantized& x, const Quantized& w, const ConvShape& shape) const {
  if (cuda::has_output(x, w, shape)) return cuda::conv2d(x, w, shape);
  return simulated_.conv2d(x, w, shape);
}

at::Tensor CudaEngine::conv2d_input_gradient(const Quantized& dy, const Quantized& w,
                                             const ConvShape& shape) const {
  if (cuda::has_input_gradient(dy, w, shape)) return cuda::conv2d_input_gradient(dy, w, shape);
  return simulated_.conv2d_input_gradient(dy, w, shape);
}

at::Tensor CudaEngine::conv2d_weight_gradient(const Quantized& dy, const Quantized& x,
                                              const ConvShape& shape) const {
  if (cuda::has_weight_gradient(dy, x, shape)) return cuda::conv2d_weight_gradient(dy, x, shape);
  return simulated_.conv2d_weight_gradient(dy, x, shape);
}

at::Tensor CudaEngine::product(const Quantized& a, const Quantized& b, const ProductShape& shape) const {
  if (cuda::is_byte_matrix(a) && cuda::is_byte_matrix(b)) {
    if (multiplies_bytes_ && cuda::fits_byte_product(a, b, shape))
      return cuda::byte_product(a, b, cuda::byte_operand(b, shape.transpose_b), shape.transpose_b, {});
    return cuda::product(a, b, shape);
  }
  return simulated_.product(a, b, shape);
}

at::Tensor CudaEngine::linear(const Quantized& x, const Quantized& w, const at::Tensor& bias) const {
  if (multiplies_bytes_ && cuda::is_byte_matrix(x) && cuda::is_byte_matrix(w) &&
      cuda::fits_byte_product(x, w, {.transpose_b = true}))
    return cuda::byte_product(x, w, cuda::byte_operand(w, /*transposed=*/true), /*transposed=*/true, bias);
  return Engine::linear(x, w, bias);
}

std::unique_ptr<const PreparedOperand> CudaEngine::prepare(const Quantized& b, bool transposed) const {
  if (cuda::is_byte_matrix(b))
    return std::make_unique<cuda::PreparedMatrix>(b, transposed, multiplies_bytes_);
  return simulated_.prepare(b, transposed);
}

at::Tensor CudaEngine::multiply(const Quantized& a, const PreparedOperand& b) const {
  if (const auto* matrix = dynamic_cast<const cuda::PreparedMatrix*>(&b); matrix && cuda::is_byte_matrix(a))
    return matrix->multiply(a);
  return simulated_.product(a, b.codes, {.transpose_b = b.transposed});
}

at::Tensor CudaEngine::aggregate(const SparseRows& matrix, const Quantized& features) const {
  if (cuda::can_aggregate(features)) return cuda::aggregate(matrix, features);
  return simulated_.aggregate(matrix, features);
}

}  // namespace lowtide
