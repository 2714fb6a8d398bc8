#include "lowtide/engine/integer/affine.h"
#include "lowtide/export/layer_writer.h"

// Products of bytes with the bits that the integer engine gives them (engine/integer/output_epilogue.h): with x = sx (qx - zx) + ex
// and w = sw (qw - zw) + ew,
//
//   Σ x·w = sx sw Σ (qx - zx)(qw - zw) + sx ew Σ (qx - zx) + ex (sw Σ (qw - zw) + N ew).
//
// Integers add up to the same in any order; the few operations on floats behind them are written in that engine's order. Codes of
// weights are unsigned: runtimes' kernels for signed ones may saturate on AVX2.

namespace lowtide {
namespace {

using integer::Affine;

bool fits_sum(int bits, std::int64_t terms) { return fits_bytes(bits) && terms <= integer::kMostTerms; }

bool is_depthwise(const ConvLayer& layer) {
  return layer.groups > 1 && layer.weight.size(0) == layer.groups && layer.weight.size(1) == 1;
}

Affine affine_of(const Range& range, int bits) {
  const float scale = scale_of(range.range.item<float>(), DeviceBits(bits).top());
  return Affine::of({{}, at::scalar_tensor(scale, at::kFloat), range.min.to(at::kCPU), bits});
}

// A weight whose rows each have an affine map, as numbers that meet the rows of results. In doubles the products with the input's
// scale are as exact as the engine's.
struct WeightRows {
  at::Tensor code;
  at::Tensor zero_point, scale, residual;  // int32 and float64

  WeightRows(const at::Tensor& weight, int bits) {
    const Quantized q = encode_rows(weight.detach().to(at::kCPU), bits);
    std::vector<std::int64_t> shape(weight.dim() == 4 ? 3 : 1, 1);
    shape[0] = weight.size(0);
    code = q.code;
    zero_point = at::empty(shape, at::kInt);
    scale = at::empty(shape, at::kDouble);
    residual = at::empty(shape, at::kDouble);
    for (std::int64_t row = 0; row < shape[0]; ++row) {
      const Affine affine = Affine::of(q, row);
      zero_point.data_ptr<std::int32_t>()[row] = affine.zero_point;
      scale.data_ptr<double>()[row] = affine.scale;
      residual.data_ptr<double>()[row] = affine.residual;
    }
  }
};

Value cast(GraphBuilder& graph, const Value& x, OnnxType type) {
  return graph.node("Cast", {x}, {{"to", static_cast<std::int64_t>(type)}});
}

Value byte(GraphBuilder& graph, int value) {
  return graph.constant(at::scalar_tensor(value, at::kByte), "zero_point");
}

// An image of ones of the size of x. Without padding every pixel sees all taps, as the one of an image of the kernel's size does:
// what is computed of that is constant.
Value image_of_ones(GraphBuilder& graph, const ConvLayer& layer, const Value& x) {
  if (layer.padding == std::array<std::int64_t, 2>{0, 0})
    return graph.constant(at::ones({1, 1, layer.weight.size(2), layer.weight.size(3)}), "ones");
  const Value size = graph.node(
      "Slice", {graph.node("Shape", {x}), graph.integers({2}), graph.integers({4}), graph.integers({0})});
  return graph.node("Expand", {graph.constant(at::ones({1, 1, 1, 1}), "ones"), size});
}

// ex (sw Σ (qw - zw) + N ew) over the taps that lie in the image; of a depthwise convolution, which sums qx alone, less N zx sx ew.
// The sums are convolutions of ones, in floats, and exact: 255 · kMostTerms < 2²⁴.
Value edge_values(GraphBuilder& graph, const ConvLayer& layer, const Affine& in, const WeightRows& w,
                  const Value& x) {
  const Value ones = image_of_ones(graph, layer, x);
  const at::Tensor centred = w.code.to(at::kInt) - w.zero_point.unsqueeze(-1);
  const at::Tensor sums = centred.sum(1, /*keepdim=*/true),
                   terms = at::full_like(sums[0], layer.weight.size(1));
  ConvLayer dense = layer;
  dense.groups = 1;
  const auto over_taps = [&](const at::Tensor& kernel) {
    const Value values = graph.constant(kernel.to(at::kFloat), "taps");
    return cast(graph, graph.node("Conv", {ones, values}, dense.geometry()), OnnxType::kDouble);
  };
  const auto times = [&](const Value& y, const at::Tensor& numbers) {
    return graph.node("Mul", {y, graph.constant(numbers.to(at::kDouble), "number")});
  };
  const Value n = over_taps(terms.unsqueeze(0));
  const Value values = graph.node("Add", {times(over_taps(sums), w.scale), times(n, w.residual)});
  Value y = times(values, at::scalar_tensor(in.residual, at::kDouble));
  if (is_depthwise(layer)) {
    const at::Tensor zero = at::scalar_tensor(static_cast<double>(in.scale) * in.zero_point, at::kDouble);
    y = graph.node("Sub", {y, times(times(n, zero), w.residual)});
  }
  return cast(graph, y, OnnxType::kFloat);
}

}  // namespace

bool ConvLayer::sums_integers() const {
  return dilation == std::array<std::int64_t, 2>{1, 1} && fits_sum(bits, weight[0].numel());
}

bool LinearLayer::sums_integers() const { return fits_sum(bits, weight.size(1)); }

// The quantiser. At 8 bits QuantizeLinear clamps by itself.
Value LayerWriter::codes(const Value& x, const Range& range, int bits) {
  const float top = DeviceBits(bits).top(), scale = scale_of(range.range.item<float>(), top);
  const float min = range.min.item<float>();
  Value y = min == 0 ? x : graph_.node("Sub", {x, graph_.number(min)});
  if (bits < kByteBits) y = graph_.node("Clip", {y, graph_.number(0), graph_.number(top * scale)});
  return graph_.node("QuantizeLinear", {y, graph_.number(scale), byte(graph_, 0)});
}

Value LayerWriter::integer_conv(const ConvLayer& layer, const Value& x) {
  const Affine in = affine_of(layer.input, layer.bits);
  const WeightRows w(layer.weight, layer.bits);
  const Value code = codes(x, layer.input, layer.bits);
  const auto sum = [&](const at::Tensor& kernel, int zero_point) {
    return graph_.node("ConvInteger", {code, graph_.constant(kernel, "codes"), byte(graph_, zero_point)},
                       layer.geometry());
  };
  const auto scaled = [&](const Value& sums, const at::Tensor& factor) {
    const at::Tensor of_channels = (factor * static_cast<double>(in.scale)).to(at::kFloat);
    return graph_.node("Mul", {cast(graph_, sums, OnnxType::kFloat), graph_.constant(of_channels, "scale")});
  };
  const at::Tensor ones = at::ones_like(layer.groups == 1 ? w.code.slice(0, 0, 1) : w.code);
  const Value inputs = sum(ones, in.zero_point);
  const Value zeros = graph_.node("Mul", {inputs, graph_.constant(w.zero_point, "zero_points")});
  const Value centred = graph_.node("Sub", {sum(w.code, in.zero_point), zeros});
  Value correction = scaled(is_depthwise(layer) ? sum(ones, 0) : inputs, w.residual);
  const bool begins_at_zero = in.residual == 0 && in.zero_point == 0;
  if (!begins_at_zero) correction = graph_.node("Add", {correction, edge_values(graph_, layer, in, w, x)});
  return graph_.node("Add", {scaled(centred, w.scale), correction});
}

// As finish_columns has it (engine/integer/matrix_operand.cpp).
Value LayerWriter::integer_product(const LinearLayer& layer, const Value& x) {
  const Affine in = affine_of(layer.input, layer.bits);
  const WeightRows w(layer.weight, layer.bits);
  const Value code = codes(x, layer.input, layer.bits), zero_point = byte(graph_, in.zero_point);
  const auto of_columns = [&](const at::Tensor& numbers) {
    return graph_.constant(numbers.to(at::kFloat), "numbers");
  };
  const Value inputs = graph_.node(
      "MatMulInteger", {code, graph_.constant(at::ones({w.code.size(1), 1}, at::kByte), "ones"), zero_point});
  const Value centred =
      graph_.node("MatMulInteger", {code, graph_.constant(w.code.t(), "codes"), zero_point,
                                    graph_.constant(w.zero_point.to(at::kByte), "zero_points")});
  const Value row = graph_.node("Mul", {cast(graph_, inputs, OnnxType::kFloat), graph_.number(in.scale)});
  Value correction = graph_.node("Mul", {row, of_columns(w.residual)});
  if (in.residual != 0) {
    const at::Tensor sums = (w.code.to(at::kInt) - w.zero_point.unsqueeze(-1)).sum(1);
    const at::Tensor value = w.scale * sums + w.residual * static_cast<double>(w.code.size(1));
    correction =
        graph_.node("Add", {correction, of_columns(value.to(at::kFloat) * static_cast<float>(in.residual))});
  }
  const Value whole = graph_.node(
      "Mul", {cast(graph_, centred, OnnxType::kFloat), of_columns(w.scale * static_cast<double>(in.scale))});
  return graph_.node("Add", {whole, correction});
}

}  // namespace lowtide
