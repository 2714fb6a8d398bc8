#include "lowtide/nn/graph_functions.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "lowtide/base/simd.h"
#include "lowtide/base/torch.h"
#include "lowtide/nn/rounded_rows.h"
#include "lowtide/nn/row_sums.h"

namespace lowtide {
namespace {

using Context = torch::autograd::AutogradContext;
using Variables = torch::autograd::variable_list;

at::Tensor scaled(const at::Tensor& x, const at::Tensor& factor) {
  return factor.defined() ? x * factor.unsqueeze(1) : x;
}

// The gradient at a call's output, quantised.
Quantized error_of(const LayerCall& call, const at::Tensor& gradient) {
  return quantise_error(gradient, call.error()).for_input;
}

at::Tensor as_value(const at::Tensor& x, DeviceBits bits) { return decode(encode_rows(x, bits)); }

template <typename Call>
c10::intrusive_ptr<Call> call_of(Context* context) {
  return c10::static_intrusive_pointer_cast<Call>(context->saved_data["call"].toCapsule());
}

struct ProductCall : LayerCall {
  at::Tensor factor;
  WeightRows weight_rows = WeightRows::kInputs;
};

class ProductFunction : public torch::autograd::Function<ProductFunction> {
 public:
  static at::Tensor forward(Context* context, const at::Tensor& /*x*/, const at::Tensor& weight,
                            const c10::intrusive_ptr<ProductCall>& call) {
    call->weight = encode_rows(weight, call->forward_bits());
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    return call->engine->product(call->input, call->weight,
                                 {.transpose_b = call->weight_rows == WeightRows::kOutputs});
  }

  static Variables backward(Context* context, const Variables& gradients) {
    const auto call = call_of<ProductCall>(context);
    const LayerError error = call->quantise_error(gradients[0]);
    const bool by_inputs = call->weight_rows == WeightRows::kInputs;
    at::Tensor dx;
    if (call->needs_input_gradient) {
      dx = call->engine->product(error.for_input, call->weight, {.transpose_b = by_inputs});
      if (call->factor.defined()) dx.mul_(call->factor.unsqueeze(1));
    }
    const at::Tensor dw = by_inputs
                              ? call->engine->product(call->input, error.for_weight, {.transpose_a = true})
                              : call->engine->product(error.for_weight, call->input, {.transpose_a = true});
    call->release();
    return {dx, dw, {}};
  }
};

// A sparse row that is quantised is a number that stands where a zero was, and entries that differ from it.
struct QuantizedEntries {
  at::Tensor entries;  // less the row's zero
  at::Tensor zero;
};
// One row's entries, less its zero; `zero` is where that went.
LOWTIDE_SIMD void quantise_row(const float* x, std::int64_t n, float min, float scale, float top, float zero,
                               float* entries) {
  for (std::int64_t i = 0; i < n; ++i) {
    const float code = std::nearbyint(std::clamp((x[i] - min) / scale, 0.0f, top));
    entries[i] = code * scale + min - zero;
  }
}

QuantizedEntries quantise_entries_on_cpu(const SparseFeatures& x, float top) {
  QuantizedEntries result{at::empty_like(x.rows.weights), at::empty_like(x.min)};
  const auto* offsets = x.rows.offsets.data_ptr<std::int64_t>();
  const auto *values = x.rows.weights.data_ptr<float>(), *min = x.min.data_ptr<float>();
  const auto* range = x.range.data_ptr<float>();
  auto *entries = result.entries.data_ptr<float>(), *zero = result.zero.data_ptr<float>();
  at::parallel_for(0, x.rows.rows(), 1024, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const float scale = std::max(range[i] / top, 1e-8f);
      zero[i] = std::nearbyint(std::clamp(-min[i] / scale, 0.0f, top)) * scale + min[i];
      quantise_row(values + offsets[i], offsets[i + 1] - offsets[i], min[i], scale, top, zero[i],
                   entries + offsets[i]);
    }
  });
  return result;
}

QuantizedEntries quantise_entries(const SparseFeatures& x, DeviceBits bits) {
  if (is_float_bits(bits)) return {x.rows.weights, {}};
  if (x.min.device().is_cpu()) return quantise_entries_on_cpu(x, bits.top());
  const at::Tensor top = top_code(bits, x.min.options());
  const auto rounded = [&](const at::Tensor& v) { return at::minimum(v.clamp_min(0), top).round_(); };
  const at::Tensor scale = (x.range / top).clamp_min(1e-8);
  const at::Tensor zero = rounded(-x.min / scale).mul_(scale).add_(x.min);
  const at::Tensor min = x.min.index_select(0, x.row_of), step = scale.index_select(0, x.row_of);
  const at::Tensor value = rounded((x.rows.weights - min) / step).mul_(step).add_(min);
  return {value - zero.index_select(0, x.row_of), zero};
}

struct SparseCall : LayerCall {
  const SparseFeatures* x = nullptr;
  at::Tensor factor;
  SparseRows columns;
  at::Tensor zero;
  bool by_inputs = true;
};

class SparseProductFunction : public torch::autograd::Function<SparseProductFunction> {
 public:
  static at::Tensor forward(Context* context, const at::Tensor& weight,
                            const c10::intrusive_ptr<SparseCall>& call) {
    const SparseFeatures& x = *call->x;
    const at::Tensor& factor = call->factor;
    const QuantizedEntries quantised = quantise_entries(x, call->forward_bits());
    SparseRows rows = x.rows;
    rows.weights = quantised.entries;
    rows.row_factor = factor;
    call->columns = x.columns;
    call->columns.weights = quantised.entries.take(x.entry);  // by all threads, unlike index_select
    call->columns.column_factor = factor;
    if (quantised.zero.defined()) {
      call->zero = factor.defined() ? quantised.zero * factor : quantised.zero;
    }
    // Rows of the weight are gathered: with a range for each output they are columns, and no codes have such ranges.
    Quantized w = encode_rows(weight, call->forward_bits());
    if (!call->by_inputs) w = {decode(w).t().contiguous(), {}, {}, 0};
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    at::Tensor y = call->engine->aggregate(rows, w);
    if (call->zero.defined()) y.add_(at::outer(call->zero, sum_rows(decode(w))));
    return y;
  }

  static Variables backward(Context* context, const Variables& gradients) {
    const auto call = call_of<SparseCall>(context);
    const Quantized error =
        call->bifurcate ? Quantized{contiguous(gradients[0]), {}, {}, 0} : error_of(*call, gradients[0]);
    at::Tensor dw = call->engine->aggregate(call->columns, error);
    if (call->zero.defined()) dw.add_(sum_rows(decode(error), call->zero));
    return {call->by_inputs ? dw : dw.t().contiguous(), {}};
  }
};

struct AggregateCall : LayerCall {
  Aggregation how;
};

class AggregateFunction : public torch::autograd::Function<AggregateFunction> {
 public:
  static at::Tensor forward(Context* context, const at::Tensor& x,
                            const c10::intrusive_ptr<AggregateCall>& call) {
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    SparseRows matrix = call->how.gather->forward;
    matrix.row_factor = call->how.row_factor;
    matrix.column_factor = call->how.column_factor;
    return call->engine->aggregate(
        matrix, encode_rows(x, call->how.quantized ? call->forward_bits() : DeviceBits(0)));
  }

  static Variables backward(Context* context, const Variables& gradients) {
    const auto call = call_of<AggregateCall>(context);
    SparseRows matrix = call->how.gather->backward;
    matrix.row_factor = call->how.column_factor;
    matrix.column_factor = call->how.row_factor;
    const Quantized error =
        call->how.quantized ? error_of(*call, gradients[0]) : Quantized{contiguous(gradients[0]), {}, {}, 0};
    return {call->engine->aggregate(matrix, error), {}};
  }
};

struct BiasCall : LayerCall {
  at::Tensor factor;
};

class BiasFunction : public torch::autograd::Function<BiasFunction> {
 public:
  static at::Tensor forward(Context* context, const at::Tensor& x, const at::Tensor& bias,
                            const c10::intrusive_ptr<BiasCall>& call) {
    const DeviceBits bits = call->forward_bits();
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    return rounded_rows(x, call->factor, rounded(bias, bits), bits);
  }

  static Variables backward(Context* context, const Variables& gradients) {
    const auto call = call_of<BiasCall>(context);
    const DecodedRows error = decode_and_sum(error_of(*call, gradients[0]), call->factor);
    return {error.values, error.sums, {}};
  }
};

class BothWaysFunction : public torch::autograd::Function<BothWaysFunction> {
 public:
  static at::Tensor forward(Context* context, const at::Tensor& x,
                            const c10::intrusive_ptr<LayerCall>& call) {
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    return is_float_bits(call->bits.forward) ? x.clone() : as_value(x, call->forward_bits());
  }

  static Variables backward(Context* context, const Variables& gradients) {
    return {decode(error_of(*call_of<LayerCall>(context), gradients[0])), {}};
  }
};

// The call of an operation that keeps more than every layer does.
template <typename Call>
c10::intrusive_ptr<Call> extended(const LayerCall& call) {
  auto result = c10::make_intrusive<Call>();
  static_cast<LayerCall&>(*result) = call;
  return result;
}

}  // namespace

Quantized scaled_rows(const Quantized& x, const at::Tensor& factor) {
  if (!factor.defined()) return x;
  if (x.bits == 0) return {scaled(x.code, factor), {}, {}, 0};
  return {x.code, x.scale * factor, x.offset * factor, x.bits};
}

at::Tensor graph_product(const at::Tensor& x, const Quantized& codes, const at::Tensor& factor,
                         const at::Tensor& weight, WeightRows weight_rows,
                         const c10::intrusive_ptr<LayerCall>& call) {
  const auto product = extended<ProductCall>(*call);
  product->input = scaled_rows(codes, factor);
  product->factor = factor;
  product->weight_rows = weight_rows;
  return ProductFunction::apply(x, weight, product);
}

at::Tensor sparse_product(const SparseFeatures& x, const at::Tensor& factor, const at::Tensor& weight,
                          WeightRows weight_rows, const c10::intrusive_ptr<LayerCall>& call) {
  const auto product = extended<SparseCall>(*call);
  product->x = &x;
  product->factor = factor;
  product->by_inputs = weight_rows == WeightRows::kInputs;
  return SparseProductFunction::apply(weight, product);
}

at::Tensor graph_aggregate(const at::Tensor& x, const Aggregation& how,
                           const c10::intrusive_ptr<LayerCall>& call) {
  const auto aggregate = extended<AggregateCall>(*call);
  aggregate->how = how;
  return AggregateFunction::apply(x, aggregate);
}

at::Tensor graph_add_bias(const at::Tensor& x, const at::Tensor& factor, const at::Tensor& bias,
                          const c10::intrusive_ptr<LayerCall>& call) {
  const auto addition = extended<BiasCall>(*call);
  addition->factor = factor;
  return BiasFunction::apply(x, bias, addition);
}

at::Tensor quantize_both_ways(const at::Tensor& x, const c10::intrusive_ptr<LayerCall>& call) {
  return BothWaysFunction::apply(x, call);
}

}  // namespace lowtide
