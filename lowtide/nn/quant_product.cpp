#include "lowtide/nn/quant_product.h"

#include "lowtide/base/torch.h"
#include "lowtide/nn/batch_error.h"

namespace lowtide {
namespace {

Quantized encode_stack(const at::Tensor& stack, DeviceBits bits) {
  const at::NoGradGuard no_grad;
  const at::Tensor x = stack.detach().contiguous();
  if (is_float_bits(bits)) return {x, {}, {}, 0};
  const at::Tensor rows = x.view({-1, x.size(-1)});
  const Quantized q = encode(rows, measure_range(rows, RangeGroup::kRow), bits);
  return {q.code.view(x.sizes()), q.scale, q.offset, q.bits};
}

// Its `input` is a, its `weight` b.
struct ProductCall : LayerCall {
  std::int64_t items = 0;
};

class ProductFunction : public torch::autograd::Function<ProductFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& /*a*/,
                            const at::Tensor& /*b*/, const c10::intrusive_ptr<ProductCall>& call) {
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    return call->engine->product(call->input, call->weight, {});
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto call =
        c10::static_intrusive_pointer_cast<ProductCall>(context->saved_data["call"].toCapsule());
    Quantized error = quantise_batch_error(*call, gradients[0], call->items).for_input;
    error.code = error.code.view(gradients[0].sizes());
    const at::Tensor da = call->engine->product(error, call->weight, {.transpose_b = true});
    const at::Tensor db = call->engine->product(call->input, error, {.transpose_a = true});
    call->release();
    return {da, db, {}};
  }
};

}  // namespace

at::Tensor quant_product(const QuantLayer& layer, const at::Tensor& a, const at::Tensor& b,
                         std::int64_t items) {
  const auto call = c10::make_intrusive<ProductCall>();
  layer.prepare(*call, /*needs_input_gradient=*/true);
  call->items = items;
  call->input = encode_stack(a, call->forward_bits());
  call->weight = encode_stack(b, call->forward_bits());
  at::Tensor y = ProductFunction::apply(a, b, call);
  layer.tell(y, y.numel() * a.size(2));
  return y;
}

}  // namespace lowtide
