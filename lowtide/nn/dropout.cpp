#include "lowtide/nn/dropout.h"

#include <ATen/Parallel.h>

#include "lowtide/base/cuda_stream.h"
#include "lowtide/base/simd.h"
#include "lowtide/base/torch.h"
#include "lowtide/nn/dropout_kernels.h"

namespace lowtide {
namespace {

LOWTIDE_SIMD void mask_chunk(const float* x, const std::uint8_t* code, float scale, std::int64_t n,
                             float* y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] * (static_cast<float>(code[i]) * scale);
}

// A mask of 0 and `scale`, by its codes 0 and 1: a byte an element is what the backward pass needs.
struct Mask {
  at::Tensor code;
  float scale;
};

struct Masked {
  at::Tensor y;
  Mask mask;
};

#if defined(LOWTIDE_WITH_CUDA)
// Kernels read and write four numbers at a time.
at::Tensor in_fours(const at::Tensor& x) {
  const at::Tensor from = x.contiguous();
  return reinterpret_cast<std::uintptr_t>(from.data_ptr()) % (4 * sizeof(float)) == 0 ? from : from.clone();
}
#endif

float scale_of_kept(double share) { return static_cast<float>(1 / (1 - share)); }

// x · mask.
at::Tensor masked(const at::Tensor& x, const Mask& mask) {
#if defined(LOWTIDE_WITH_CUDA)
  if (x.is_cuda()) {
    const at::Tensor from = in_fours(x);
    at::Tensor y = at::empty_like(from);
    mask_on_gpu({.x = from.data_ptr<float>(),
                 .code = mask.code.data_ptr<std::uint8_t>(),
                 .y = y.data_ptr<float>(),
                 .n = y.numel(),
                 .scale = mask.scale},
                current_cuda_stream());
    return y;
  }
#endif
  const at::Tensor from = x.contiguous();
  at::Tensor y = at::empty_like(from);
  const auto* code = mask.code.data_ptr<std::uint8_t>();
  at::parallel_for(0, from.numel(), 1 << 16, [&](std::int64_t begin, std::int64_t end) {
    mask_chunk(from.data_ptr<float>() + begin, code + begin, mask.scale, end - begin,
               y.data_ptr<float>() + begin);
  });
  return y;
}

// A factor of 1 rounded stochastically to one bit with the codes' values 0 and 1/keep is 1/keep with probability `keep`:
// the quantiser draws the mask, on any device and by the counter.
Masked drop(const at::Tensor& x, float inverse_keep, const NoiseKey& key) {
#if defined(LOWTIDE_WITH_CUDA)
  if (x.is_cuda()) {
    const at::Tensor from = in_fours(x);
    const Masked result{at::empty_like(from),
                        {at::empty_like(from, from.options().dtype(at::kByte)), inverse_keep}};
    dropout_on_gpu({.x = from.data_ptr<float>(),
                    .y = result.y.data_ptr<float>(),
                    .code = result.mask.code.data_ptr<std::uint8_t>(),
                    .n = from.numel(),
                    .scale = inverse_keep,
                    .counter = counter_of(key),
                    .device_step = key.device_step},
                   current_cuda_stream());
    return result;
  }
#endif
  const at::Tensor one = at::ones(x.sizes(), x.options());
  const Range range{at::zeros({1}, one.options()), at::full({1}, inverse_keep, one.options())};
  const Mask mask{encode(one, range, 1, Noise::drawn(key)).code, inverse_keep};
  return {masked(x, mask), mask};
}

class DropoutFunction : public torch::autograd::Function<DropoutFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, double share,
                            const NoiseKey& key) {
    const Masked result = drop(x.detach(), scale_of_kept(share), key);
    context->save_for_backward({result.mask.code});
    context->saved_data["scale"] = static_cast<double>(result.mask.scale);
    return result.y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const Mask mask{context->get_saved_variables()[0],
                    static_cast<float>(context->saved_data["scale"].toDouble())};
    return {masked(gradients[0], mask), {}, {}};
  }
};

}  // namespace

at::Tensor DropoutImpl::forward(const at::Tensor& x) const {
  if (share_ == 0 || !is_training()) return x;
  return DropoutFunction::apply(x, share_, noise_key());
}

DropoutNoise DropoutImpl::draw() const {
  if (share_ == 0 || !is_training()) return {};
  const NoiseKey key = noise_key();
  return {scale_of_kept(share_), counter_of(key), key.device_step};
}

}  // namespace lowtide
