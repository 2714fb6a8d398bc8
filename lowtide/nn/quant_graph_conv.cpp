#include "lowtide/nn/quant_graph_conv.h"

#include "lowtide/base/torch.h"

namespace lowtide {
namespace {

// Sparse features that are summed before they are multiplied, which happens where there are few of them.
NodeInput as_dense(const NodeInput& x) {
  if (!x.sparse) return x;
  const SparseRows& rows = x.sparse->rows;
  const at::Tensor place = x.sparse->row_of * rows.columns + rows.indices;
  at::Tensor values = at::zeros({rows.rows() * rows.columns}, rows.weights.options());
  return {values.index_add_(0, place, rows.weights).view({rows.rows(), rows.columns}), {}, {}};
}

// The first nodes of x: those that a sampled block computes are the first that it gathers from.
NodeInput first_rows(const NodeInput& x, std::int64_t count) {
  if (count == x.rows()) return x;
  return x.sparse ? NodeInput{{}, x.sparse_own, {}} : NodeInput{x.dense.narrow(0, 0, count), {}, {}};
}
Quantized first_rows(const Quantized& x, std::int64_t count) {
  if (!x.code.defined() || count == x.code.size(0)) return x;
  if (x.bits == 0) return {x.code.narrow(0, 0, count), {}, {}, 0};
  return {x.code.narrow(0, 0, count), x.scale.narrow(0, 0, count), x.offset.narrow(0, 0, count), x.bits};
}

}  // namespace

c10::intrusive_ptr<LayerCall> GraphConv::new_call(bool needs_input_gradient) const {
  auto call = c10::make_intrusive<LayerCall>();
  prepare(*call, needs_input_gradient);
  return call;
}

Quantized GraphConv::codes_of(const NodeInput& x) const {
  return x.sparse ? Quantized{} : encode_rows(x.dense, forward_bits());
}

at::Tensor GraphConv::product(const NodeInput& x, const Quantized& codes, const at::Tensor& factor,
                              const at::Tensor& weight, WeightRows weight_rows) const {
  if (x.sparse) {
    at::Tensor y = sparse_product(*x.sparse, factor, weight, weight_rows, new_call());
    tell(y, x.sparse->rows.indices.numel() * y.size(1));
    return y;
  }
  at::Tensor y =
      graph_product(x.dense, codes, factor, weight, weight_rows, new_call(x.dense.requires_grad()));
  tell(y, x.dense.numel() * y.size(1));
  return y;
}

QuantGcnConvImpl::QuantGcnConvImpl(const GraphConvOptions& conv_options) : options(conv_options) {
  weight = register_parameter("weight", torch::zeros({options.inputs, options.outputs}));
  bias = register_parameter("bias", torch::zeros({options.outputs}));
}

at::Tensor QuantGcnConvImpl::forward(const NodeInput& x, const std::shared_ptr<const Gather>& gather) {
  at::Tensor y;
  if (options.inputs > options.outputs) {
    y = product(x, codes_of(x), gather->column_norm, weight, WeightRows::kInputs);
    y = graph_aggregate(y, {gather, {}, {}, options.quantized_aggregation}, new_call());
  } else {
    const at::Tensor sum = graph_aggregate(
        as_dense(x).dense, {gather, {}, gather->column_norm, options.quantized_aggregation}, new_call());
    y = product({sum, {}, {}}, codes_of({sum, {}, {}}), {}, weight, WeightRows::kInputs);
  }
  return graph_add_bias(y, gather->row_norm, bias, new_call());
}

QuantSageConvImpl::QuantSageConvImpl(const GraphConvOptions& conv_options) : options(conv_options) {
  self_weight = register_parameter("self_weight", torch::zeros({options.outputs, options.inputs}));
  neighbour_weight = register_parameter("neighbour_weight", torch::zeros({options.outputs, options.inputs}));
  bias = register_parameter("bias", torch::zeros({options.outputs}));
}

at::Tensor QuantSageConvImpl::forward(const NodeInput& given, const std::shared_ptr<const Gather>& gather) {
  const NodeInput x = options.inputs > options.outputs ? given : as_dense(given);
  const Quantized codes = codes_of(x);
  const NodeInput own = first_rows(x, gather->rows());
  const at::Tensor y = product(own, first_rows(codes, gather->rows()), {}, self_weight, WeightRows::kOutputs);
  return graph_add_bias(y + neighbours(x, codes, gather), {}, bias, new_call());
}

at::Tensor QuantSageConvImpl::neighbours(const NodeInput& x, const Quantized& codes,
                                         const std::shared_ptr<const Gather>& gather) const {
  const Aggregation mean{gather, gather->mean, {}, options.quantized_aggregation};
  if (options.inputs > options.outputs) {
    return graph_aggregate(product(x, codes, {}, neighbour_weight, WeightRows::kOutputs), mean, new_call());
  }
  const NodeInput sum{graph_aggregate(x.dense, mean, new_call()), {}, {}};
  return product(sum, codes_of(sum), {}, neighbour_weight, WeightRows::kOutputs);
}

}  // namespace lowtide
