#include "lowtide/nn/pointwise.h"

#include <algorithm>

#include "lowtide/base/cuda_stream.h"
#include "lowtide/base/parallel.h"
#include "lowtide/base/torch.h"
#include "lowtide/nn/pointwise_kernels.h"
#include "lowtide/quant/quantizer_kernels.h"

namespace lowtide {
namespace {

// Elements of a chunk; a multiple of every vector's length.
constexpr std::int64_t kChunk = 16384;

// compute(first, count) for every chunk. What libtorch does inside is done by one thread.
template <typename Compute>
void for_each_chunk(std::int64_t elements, const Compute& compute) {
  parallel_for((elements + kChunk - 1) / kChunk, 2, [&](std::int64_t chunk) {
    const at::NoGradGuard no_grad;  // a thread's own matter
    const std::int64_t first = chunk * kChunk;
    compute(first, std::min(kChunk, elements - first));
  });
}

struct Sigmoid : torch::autograd::Function<Sigmoid> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    at::Tensor y = at::empty_like(x, at::MemoryFormat::Contiguous);
    const at::Tensor from = x.contiguous().view(-1), to = y.view(-1);
    for_each_chunk(from.numel(), [&](std::int64_t first, std::int64_t count) {
      at::Tensor part = to.narrow(0, first, count);
      at::sigmoid_out(part, from.narrow(0, first, count));
    });
    context->save_for_backward({y});
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const at::Tensor y = context->get_saved_variables()[0];
    return {gradients[0] * (1 - y) * y};  // products of two numbers round alike in vectors and without
  }
};

struct Gelu : torch::autograd::Function<Gelu> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    const at::Tensor from = x.contiguous();
    context->save_for_backward({from});
    at::Tensor y = at::empty_like(from);
    const at::Tensor flat = from.view(-1), to = y.view(-1);
    for_each_chunk(flat.numel(), [&](std::int64_t first, std::int64_t count) {
      at::Tensor part = to.narrow(0, first, count);
      at::gelu_out(part, flat.narrow(0, first, count));
    });
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const at::Tensor x = context->get_saved_variables()[0], gradient = gradients[0].contiguous();
    at::Tensor dx = at::empty_like(x);
    const at::Tensor flat = x.view(-1), error = gradient.view(-1), to = dx.view(-1);
    for_each_chunk(flat.numel(), [&](std::int64_t first, std::int64_t count) {
      at::Tensor part = to.narrow(0, first, count);
      at::gelu_backward_out(part, error.narrow(0, first, count), flat.narrow(0, first, count));
    });
    return {dx};
  }
};

#if defined(LOWTIDE_WITH_CUDA)
struct GeluCall : torch::CustomClassHolder {
  Range range;  // of the result
};

struct GpuGelu : torch::autograd::Function<GpuGelu> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& given,
                            const c10::intrusive_ptr<GeluCall>& call) {
    at::Tensor x = given.contiguous();
    if (reinterpret_cast<std::uintptr_t>(x.data_ptr()) % (4 * sizeof(float)) != 0) x = x.clone();
    at::Tensor y = at::empty_like(x);
    call->range = {at::empty({1}, x.options()), at::empty({1}, x.options())};
    const at::Tensor scratch = at::empty({kRangeScratchBytes}, x.options().dtype(at::kByte));
    GeluArguments a;
    a.x = x.data_ptr<float>();
    a.n = x.numel();
    a.y = y.data_ptr<float>();
    a.min = call->range.min.data_ptr<float>();
    a.range = call->range.range.data_ptr<float>();
    a.scratch = scratch.data_ptr();
    gelu_on_gpu(a, current_cuda_stream());
    context->save_for_backward({x});
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    return {at::gelu_backward(gradients[0], context->get_saved_variables()[0]), {}};
  }
};

Activation measured_gelu(const at::Tensor& x) {
  const auto call = c10::make_intrusive<GeluCall>();
  const at::Tensor y = GpuGelu::apply(x, call);
  return {y, call->range};
}
#endif

}  // namespace

at::Tensor sigmoid(const at::Tensor& x) { return x.device().is_cpu() ? Sigmoid::apply(x) : x.sigmoid(); }

Activation gelu(const at::Tensor& x) {
#if defined(LOWTIDE_WITH_CUDA)
  if (x.is_cuda() && x.numel() > 0) return measured_gelu(x);
#endif
  return Gelu::apply(x);
}

}  // namespace lowtide
