#include "lowtide/nn/dropout.h"

#include <ATen/Parallel.h>

#include "lowtide/base/simd.h"
#include "lowtide/base/torch.h"

namespace lowtide {
namespace {

LOWTIDE_SIMD void mask_chunk(const float* x, const std::uint8_t* code, float scale, std::int64_t n,
                             float* y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] * (static_cast<float>(code[i]) * scale);
}

// x · mask. The mask's codes are 0 and 1, with an offset of 0.
at::Tensor masked(const at::Tensor& x, const Quantized& mask) {
  if (!x.device().is_cpu()) return x * decode(mask);
  const at::Tensor from = x.contiguous();
  at::Tensor y = at::empty_like(from);
  const float scale = mask.scale.item<float>();
  const auto* code = mask.code.data_ptr<std::uint8_t>();
  at::parallel_for(0, from.numel(), 1 << 16, [&](std::int64_t begin, std::int64_t end) {
    mask_chunk(from.data_ptr<float>() + begin, code + begin, scale, end - begin, y.data_ptr<float>() + begin);
  });
  return y;
}

// What it keeps for the backward pass is a byte an element.
class DropoutFunction : public torch::autograd::Function<DropoutFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const Quantized& mask) {
    context->save_for_backward({mask.code, mask.scale, mask.offset});
    return masked(x, mask);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    return {masked(gradients[0], {saved[0], saved[1], saved[2], 1}), {}};
  }
};

}  // namespace

// A factor of 1 rounded stochastically to one bit with the codes' values 0 and 1/keep is 1/keep with probability `keep`:
// the quantiser draws the mask, on any device and by the counter.
at::Tensor DropoutImpl::forward(const at::Tensor& x) const {
  if (share_ == 0 || !is_training()) return x;
  const double keep = 1 - share_;
  const at::Tensor one = at::ones(x.sizes(), x.options().requires_grad(false));
  const Range range{at::zeros({1}, one.options()), at::full({1}, 1 / keep, one.options())};
  return DropoutFunction::apply(x, encode(one, range, 1, Noise::drawn(noise_key())));
}

}  // namespace lowtide
