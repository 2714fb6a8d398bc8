#include "lowtide/nn/quant_product.h"

#include <vector>

#include "lowtide/base/cuda_stream.h"
#include "lowtide/base/torch.h"
#include "lowtide/nn/attention_kernels.h"
#include "lowtide/nn/batch_error.h"

namespace lowtide {
namespace {

#if defined(LOWTIDE_WITH_CUDA)
bool has_kernel(const ProductOperand& operand, int bits) {
  const at::Tensor& x = operand.source;
  return x.defined() && x.is_cuda() && bits <= kByteBits && x.is_contiguous() &&
         reinterpret_cast<std::uintptr_t>(x.data_ptr()) % (4 * sizeof(float)) == 0 &&
         can_encode_heads(x.size(1), x.size(2) / operand.value.size(1));
}

// Ranges and codes in one pass, without a copy by head.
Quantized encode_heads(const ProductOperand& operand, DeviceBits bits) {
  const at::Tensor& x = operand.source;
  const std::int64_t matrices = x.size(0) * operand.value.size(1), rows = operand.value.size(2);
  const Quantized q{at::empty({matrices, rows, operand.value.size(3)}, x.options().dtype(at::kByte)),
                    at::empty({matrices * rows}, x.options()), at::empty({matrices * rows}, x.options()),
                    bits};
  EncodeHeadsArguments a;
  a.x = x.data_ptr<float>();
  a.items = x.size(0);
  a.length = static_cast<int>(x.size(1));
  a.heads = static_cast<int>(operand.value.size(1));
  a.units = static_cast<int>(x.size(2)) / a.heads;
  a.transposed = operand.transposed;
  a.bits = bits;
  a.code = q.code.data_ptr<std::uint8_t>();
  a.scale = q.scale.data_ptr<float>();
  a.min = q.offset.data_ptr<float>();
  encode_heads_on_gpu(a, current_cuda_stream());
  return q;
}
#endif

Quantized encode_operand(const ProductOperand& operand, DeviceBits bits) {
  const at::NoGradGuard no_grad;
#if defined(LOWTIDE_WITH_CUDA)
  if (!is_float_bits(bits) && has_kernel(operand, bits)) return encode_heads(operand, bits);
#endif
  const at::Tensor& value = operand.value;
  const at::Tensor x = value.detach().reshape({-1, value.size(-2), value.size(-1)}).contiguous();
  if (is_float_bits(bits)) return {x, {}, {}, 0};
  const at::Tensor rows = x.view({-1, x.size(-1)});
  const Range range = operand.range.min.defined() ? operand.range : measure_range(rows, RangeGroup::kRow);
  const Quantized q = encode(rows, range, bits);
  return {q.code.view(x.sizes()), q.scale, q.offset, q.bits};
}

// Its `input` is a, its `weight` b.
struct ProductCall : LayerCall {
  std::int64_t items = 0;
  std::vector<std::int64_t> a_shape, b_shape;  // as autograd sees them
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
    return {da.view(call->a_shape), db.view(call->b_shape), {}};
  }
};

}  // namespace

ProductOperand ProductOperand::heads(const at::Tensor& x, std::int64_t heads, bool transposed) {
  // items × heads × length × units
  const at::Tensor by_head = x.view({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
  ProductOperand operand(transposed ? by_head.transpose(2, 3) : by_head);
  operand.source = x.detach();
  operand.transposed = transposed;
  return operand;
}

at::Tensor quant_product(const QuantLayer& layer, const ProductOperand& a, const ProductOperand& b,
                         std::int64_t items) {
  const auto call = c10::make_intrusive<ProductCall>();
  layer.prepare(*call, /*needs_input_gradient=*/true);
  call->items = items;
  call->a_shape = a.value.sizes().vec();
  call->b_shape = b.value.sizes().vec();
  call->input = encode_operand(a, call->forward_bits());
  call->weight = encode_operand(b, call->forward_bits());
  at::Tensor y = ProductFunction::apply(a.value, b.value, call);
  layer.tell(y, y.numel() * a.value.size(-1));
  return y;
}

}  // namespace lowtide
