#include "lowtide/nn/attention.h"

#include <cmath>

#include "lowtide/base/cuda_stream.h"
#include "lowtide/base/error.h"
#include "lowtide/base/torch.h"
#include "lowtide/nn/attention_kernels.h"

namespace lowtide {
namespace {

#if defined(LOWTIDE_WITH_CUDA)
struct AttendCall : torch::CustomClassHolder {
  AttendArguments of;
  Range range;  // of the weights' rows
};

// Masks of the dropout are drawn anew on the way back, which is less than to keep them.
class AttendFunction : public torch::autograd::Function<AttendFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const c10::intrusive_ptr<AttendCall>& call) {
    const at::Tensor scores = input.contiguous();
    const at::Tensor p = at::empty_like(scores),
                     weights = call->of.dropout.scale == 0 ? p : at::empty_like(scores);
    const std::int64_t rows = scores.size(0) * scores.size(1);
    call->range = {at::empty({rows}, scores.options()), at::empty({rows}, scores.options())};
    AttendArguments a = call->of;
    a.scores = scores.data_ptr<float>();
    a.p = p.data_ptr<float>();
    a.weights = weights.data_ptr<float>();
    a.min = call->range.min.data_ptr<float>();
    a.range = call->range.range.data_ptr<float>();
    attend_on_gpu(a, current_cuda_stream());
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    context->save_for_backward({p});
    return weights;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto call = c10::static_intrusive_pointer_cast<AttendCall>(context->saved_data["call"].toCapsule());
    const at::Tensor p = context->get_saved_variables()[0], gradient = gradients[0].contiguous();
    at::Tensor result = at::empty_like(p);
    attend_gradient_on_gpu(
        {call->of, p.data_ptr<float>(), gradient.data_ptr<float>(), result.data_ptr<float>()},
        current_cuda_stream());
    return {result, {}};
  }
};

Activation attend(const at::Tensor& scores, const at::Tensor& given_mask, double factor,
                  const Dropout& dropout, std::int64_t items) {
  const at::Tensor mask = given_mask.contiguous();
  const auto call = c10::make_intrusive<AttendCall>();
  AttendArguments& a = call->of;
  a.mask = mask.data_ptr<float>();
  a.mask_item = mask.size(0) > 1 ? mask.size(1) * mask.size(2) : 0;
  a.mask_row = mask.size(1) > 1 ? mask.size(2) : 0;
  a.factor = static_cast<float>(factor);
  a.items = items;
  a.heads = scores.size(0) / items;
  a.rows = scores.size(1);
  a.length = static_cast<int>(scores.size(2));
  a.dropout = dropout->draw();
  const at::Tensor weights = AttendFunction::apply(scores, call);
  return {weights, call->range};
}
#endif

}  // namespace

SelfAttentionImpl::SelfAttentionImpl(const AttentionOptions& options) : options_(options) {
  LOWTIDE_CHECK(options.hidden % options.heads == 0, "heads of unequal size");
  const auto linear = [&](const char* name) {
    return register_module(
        name, QuantLinear(QuantLinearOptions{options.hidden, options.hidden, ErrorRange::kPosition}));
  };
  query_ = linear("query");
  key_ = linear("key");
  value_ = linear("value");
  scores_ = register_module("scores", QuantProduct());
  dropout_ = register_module("dropout", Dropout(options.dropout));
  context_ = register_module("context", QuantProduct());
  output_ = linear("output");
}

at::Tensor SelfAttentionImpl::forward(const at::Tensor& x, const at::Tensor& mask) {
  const std::int64_t items = x.size(0), length = x.size(1), heads = options_.heads;
  LayerInput input(x);
  const at::Tensor query = query_->read(input), key = key_->read(input), value = value_->read(input);
  const double factor = 1 / std::sqrt(static_cast<double>(options_.hidden / heads));
  const at::Tensor scores = scores_->forward(ProductOperand::heads(query, heads, /*transposed=*/false),
                                             ProductOperand::heads(key, heads, /*transposed=*/true), items);
  const Activation weights = attention_weights(scores, mask, factor, dropout_, items);
  const at::Tensor context =
      context_->forward(weights, ProductOperand::heads(value, heads, /*transposed=*/false), items);
  return output_->forward(
      context.view({items, heads, length, -1}).transpose(1, 2).reshape({items, length, options_.hidden}));
}

Activation attention_weights(const at::Tensor& scores, const at::Tensor& mask, double factor,
                             const Dropout& dropout, std::int64_t items) {
#if defined(LOWTIDE_WITH_CUDA)
  if (scores.is_cuda() && scores.size(2) <= kMostAttended)
    return attend(scores, mask, factor, dropout, items);
#endif
  const at::Tensor by_item = (scores * factor).view({items, -1, scores.size(1), scores.size(2)});
  return dropout->forward((by_item + mask.unsqueeze(1)).softmax(-1).view(scores.sizes()));
}

}  // namespace lowtide
