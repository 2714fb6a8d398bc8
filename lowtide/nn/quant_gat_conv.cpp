#include "lowtide/nn/quant_gat_conv.h"

#include <algorithm>

#include "lowtide/base/torch.h"
#include "lowtide/nn/row_sums.h"

namespace lowtide {
namespace {

using Context = torch::autograd::AutogradContext;
using Variables = torch::autograd::variable_list;

constexpr double kSlope = 0.2;  // of LeakyReLU, as in the paper

struct AttentionCall : LayerCall {
  std::shared_ptr<const Gather> gather;
  bool quantized = false;
};

template <typename Call>
c10::intrusive_ptr<Call> call_of(Context* context) {
  return c10::static_intrusive_pointer_cast<Call>(context->saved_data["call"].toCapsule());
}

at::Tensor sum_entries(const AttentionCall& call, const SparseRows& by, const at::Tensor& values) {
  return call.engine->aggregate(by, {values.contiguous(), {}, {}, 0});
}

// The softmax over every row's entries of LeakyReLU(row score + column score); scores are nodes × heads.
class SoftmaxFunction : public torch::autograd::Function<SoftmaxFunction> {
 public:
  static at::Tensor forward(Context* context, const at::Tensor& row_score, const at::Tensor& column_score,
                            const c10::intrusive_ptr<AttentionCall>& call) {
    const Entries& entries = call->gather->entries;
    const at::Tensor sum =
        row_score.index_select(0, entries.row) + column_score.index_select(0, entries.column);
    at::Tensor weight = at::leaky_relu(sum, kSlope);
    const at::Tensor lengths = call->gather->forward.offsets.diff();
    const at::Tensor most = at::segment_reduce(weight, "max", lengths, {}, {}, 0, /*unsafe=*/true);
    weight = weight.sub_(most.index_select(0, entries.row)).exp_();
    weight.div_(sum_entries(*call, entries.by_row, weight).index_select(0, entries.row));
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    context->save_for_backward({weight, sum});
    return weight;
  }

  static Variables backward(Context* context, const Variables& gradients) {
    const auto call = call_of<AttentionCall>(context);
    const Entries& entries = call->gather->entries;
    const auto saved = context->get_saved_variables();
    const at::Tensor &weight = saved[0], &sum = saved[1];
    const at::Tensor weighted = weight * gradients[0];
    const at::Tensor of_row = sum_entries(*call, entries.by_row, weighted);
    at::Tensor d = weighted - weight * of_row.index_select(0, entries.row);
    d = at::where(sum > 0, d, d * kSlope);
    return {sum_entries(*call, entries.by_row, d), sum_entries(*call, entries.by_column, d), {}};
  }
};

// Entry by entry, the product of a row of `left` with a row of `right` in each head; so many entries at a time that what
// is gathered for them takes little memory.
at::Tensor entry_products(const Entries& entries, const at::Tensor& left, const at::Tensor& right,
                          std::int64_t heads) {
  constexpr std::int64_t kNumbersAtATime = 1 << 23;
  const std::int64_t count = entries.row.numel(), width = left.size(1);
  const std::int64_t chunk = std::max<std::int64_t>(1, kNumbersAtATime / width);
  at::Tensor result = at::empty({count, heads}, left.options());
  for (std::int64_t first = 0; first < count; first += chunk) {
    const std::int64_t n = std::min(chunk, count - first);
    const at::Tensor products = left.index_select(0, entries.row.narrow(0, first, n))
                                    .mul_(right.index_select(0, entries.column.narrow(0, first, n)));
    result.narrow(0, first, n).copy_(products.view({n, heads, -1}).sum(-1));
  }
  return result;
}

// The weighted sum over neighbours.
class AttendFunction : public torch::autograd::Function<AttendFunction> {
 public:
  static at::Tensor forward(Context* context, const at::Tensor& x, const at::Tensor& weight,
                            const c10::intrusive_ptr<AttentionCall>& call) {
    call->input = encode_rows(x, call->quantized ? call->forward_bits() : DeviceBits(0));
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    context->save_for_backward({weight});
    SparseRows matrix = call->gather->forward;
    matrix.weights = weight.contiguous();
    return call->engine->aggregate(matrix, call->input);
  }

  static Variables backward(Context* context, const Variables& gradients) {
    const auto call = call_of<AttentionCall>(context);
    const at::Tensor weight = context->get_saved_variables()[0];
    const Quantized unquantised{contiguous(gradients[0]), {}, {}, 0};
    const Quantized error = call->quantized ? call->quantise_error(gradients[0]).for_input : unquantised;
    SparseRows matrix = call->gather->backward;
    matrix.weights = weight.index_select(0, call->gather->entries.transposed);
    const at::Tensor dx = call->engine->aggregate(matrix, error);
    const at::Tensor dw =
        entry_products(call->gather->entries, decode(error), decode(call->input), weight.size(1));
    call->release();
    return {dx, dw, {}};
  }
};

}  // namespace

QuantGatConvImpl::QuantGatConvImpl(const GatConvOptions& conv_options) : options(conv_options) {
  const GraphConvOptions& conv = options.conv;
  weight = register_parameter("weight", torch::zeros({conv.inputs, conv.outputs}));
  row_attention =
      register_parameter("row_attention", torch::zeros({options.heads, conv.outputs / options.heads}));
  column_attention = register_parameter("column_attention", torch::zeros_like(row_attention));
  bias = register_parameter("bias", torch::zeros({conv.outputs}));
  dropout_ = register_module("dropout", Dropout(options.dropout));
}

at::Tensor QuantGatConvImpl::forward(const NodeInput& x, const std::shared_ptr<const Gather>& gather) {
  const at::Tensor z = product(x, codes_of(x), {}, weight, WeightRows::kInputs);
  const auto call = [&] {
    auto attention = c10::make_intrusive<AttentionCall>();
    prepare(*attention, true);
    attention->gather = gather;
    attention->quantized = options.conv.quantized_aggregation;
    return attention;
  };
  const at::Tensor by_head = z.view({z.size(0), options.heads, -1});
  const auto scores = [&](const at::Tensor& nodes, const at::Tensor& attention_weight) {
    return (nodes * repeat_rows(attention_weight, nodes.size(0))).sum(-1);
  };
  const at::Tensor row_score = scores(by_head.narrow(0, 0, gather->rows()), row_attention);
  const at::Tensor column_score = scores(by_head, column_attention);
  const at::Tensor attention = SoftmaxFunction::apply(row_score, column_score, call());
  const at::Tensor y = AttendFunction::apply(z, dropout_->forward(attention), call());
  return graph_add_bias(y, {}, bias, new_call());
}

}  // namespace lowtide
