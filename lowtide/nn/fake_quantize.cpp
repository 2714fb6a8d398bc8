#include "lowtide/nn/fake_quantize.h"

#include "lowtide/base/torch.h"

namespace lowtide {
namespace {

// A range a row, shaped so that it meets the rows of x; a single one as it is.
at::Tensor a_row_each(const at::Tensor& values, const at::Tensor& x) {
  if (values.numel() == 1) return values;
  std::vector<std::int64_t> shape(static_cast<std::size_t>(x.dim()), 1);
  shape[0] = values.numel();
  return values.view(shape);
}

class FakeQuantizeFunction : public torch::autograd::Function<FakeQuantizeFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const Range& range, int bits, const Noise& noise, StraightThrough gradient) {
    const bool masks = gradient == StraightThrough::kInside && !is_float_bits(bits);
    if (masks) {
      const at::Tensor low = a_row_each(range.min, x);
      const at::Tensor high = a_row_each(range.min + range.range, x);
      context->save_for_backward({x.ge(low).logical_and_(x.le(high))});
    }
    context->saved_data["masks"] = masks;
    const at::Tensor y = decode(encode(x, range, bits, noise));
    return y.is_same(x) ? x.clone() : y;  // a function's output must not be its input
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    if (!context->saved_data["masks"].toBool()) return {gradients[0], {}, {}, {}, {}};
    return {gradients[0] * context->get_saved_variables()[0], {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor fake_quantize(const at::Tensor& x, const Range& range, int bits, const Noise& noise,
                         StraightThrough gradient) {
  return FakeQuantizeFunction::apply(x, range, bits, noise, gradient);
}

}  // namespace lowtide
