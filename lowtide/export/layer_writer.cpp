#include "lowtide/export/layer_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lowtide/base/error.h"

namespace lowtide {
namespace {

// Values of each row, shaped so that they meet the rows of x; as columns where x is transposed.
at::Tensor by_row(const at::Tensor& values, const at::Tensor& x) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(x.dim()), 1);
  shape[0] = values.numel();
  return values.view(shape);
}

// The weight as it is evaluated, as floats.
at::Tensor evaluated(const at::Tensor& weight, int bits) {
  return decode(encode_rows(weight.detach(), bits));
}

// A convolution's with what follows it.
at::Tensor folded_weight(const ConvLayer& layer) {
  const at::Tensor values = evaluated(layer.weight, layer.bits);
  return layer.factor.defined() ? values * by_row(layer.factor, values) : values;
}

// Undefined where there is none.
at::Tensor folded_bias(const ConvLayer& layer) {
  if (!layer.factor.defined()) return layer.bias;
  at::Tensor shift = layer.shift;
  if (layer.bias.defined()) shift = shift + layer.bias * layer.factor;
  return layer.mean.defined() ? shift - layer.mean * layer.factor : shift;
}

// value = (code - zero_point) · scale, over a range that holds 0 too: padding must have a code.
struct IntegerRange {
  float scale = 0;
  int zero_point = 0;
};

IntegerRange integer_range(const Range& range, int bits) {
  const float min = range.min.item<float>(), top = DeviceBits(bits).top();
  const float low = std::min(min, 0.0f), high = std::max(min + range.range.item<float>(), 0.0f);
  const float scale = scale_of(high - low, top);
  return {scale, static_cast<int>(std::clamp(std::nearbyint(-low / scale), 0.0f, top))};
}

// value = code · scale by row, codes of -127 to 127.
struct SymmetricWeight {
  at::Tensor code, scale;
};

// A bias is a whole number of 32 bits in units of input_scale · scale: rows that are nearly 0 have a larger scale for that.
SymmetricWeight symmetric(const at::Tensor& values, const at::Tensor& bias, float input_scale) {
  constexpr double kTop = 127, kBiasTop = 0x1p30;
  at::Tensor scale = (values.abs().flatten(1).amax(1) / kTop).clamp_min(1e-8);
  if (bias.defined()) scale = at::maximum(scale, bias.abs() / (input_scale * kBiasTop));
  const at::Tensor codes = (values / by_row(scale, values)).round().clamp(-kTop, kTop);
  return {codes.to(at::kChar), scale};
}

}  // namespace

std::vector<OnnxAttribute> ConvLayer::geometry() const {
  const auto& [top, left] = padding;
  const auto pair = [](const std::array<std::int64_t, 2>& values) {
    return std::vector<std::int64_t>(values.begin(), values.end());
  };
  return {{"kernel_shape", weight.sizes().slice(2).vec()},
          {"strides", pair(stride)},
          {"pads", std::vector<std::int64_t>{top, left, top, left}},
          {"dilations", pair(dilation)},
          {"group", groups}};
}

void LayerWriter::expect_codes(int bits) const {
  if (form_ == ExportForm::kQdq && !fits_bytes(bits) && !is_float_bits(bits)) {
    throw UserError(fmt::format(
        "{} bits in the form qdq, whose codes are bytes; expected at most 8, or the form exact", bits));
  }
}

Value LayerWriter::scaled_codes(const at::Tensor& codes, const at::Tensor& scale, std::int64_t axis) {
  const at::Tensor zeros = at::zeros(scale.sizes(), codes.options());
  return graph_.node("DequantizeLinear",
                     {graph_.constant(codes, "codes"), graph_.constant(scale, "scale"),
                      graph_.constant(zeros, "zero_point")},
                     {{"axis", axis}});
}

// code · scale + offset, transposed or not.
Value LayerWriter::exact_weight(const at::Tensor& weight, int bits, bool transposed) {
  const auto stored = [&](const at::Tensor& rows) { return transposed ? rows.t() : rows; };
  if (!fits_bytes(bits)) return graph_.constant(stored(evaluated(weight, bits)), "weight");
  const Quantized q = encode_rows(weight.detach(), bits);
  const Value scaled = scaled_codes(stored(q.code), q.scale, transposed ? 1 : 0);
  return graph_.node("Add", {scaled, graph_.constant(stored(by_row(q.offset, q.code)), "offset")});
}

Value LayerWriter::rounded(const Value& x, const Value& min, const Value& scale, int bits) {
  const Value steps = graph_.node("Div", {graph_.node("Sub", {x, min}), scale});
  const Value within = graph_.node("Clip", {steps, graph_.number(0), graph_.number(DeviceBits(bits).top())});
  return graph_.node("Add", {graph_.node("Mul", {graph_.node("Round", {within}), scale}), min});
}

Value LayerWriter::zero_point_codes(const Value& x, const Range& range, int bits) {
  const IntegerRange codes = integer_range(range, bits);
  const auto byte = [&](int value) { return graph_.constant(at::scalar_tensor(value, at::kByte), "byte"); };
  const Value scale = graph_.number(codes.scale), zero_point = byte(codes.zero_point);
  Value code = graph_.node("QuantizeLinear", {x, scale, zero_point});
  if (bits < kByteBits) code = graph_.node("Clip", {code, byte(0), byte((1 << bits) - 1)});
  return graph_.node("DequantizeLinear", {code, scale, zero_point});
}

Value LayerWriter::activation(const Value& x, const Range& range, int bits) {
  if (is_float_bits(bits)) return x;
  if (form_ == ExportForm::kQdq) return zero_point_codes(x, range, bits);
  const float scale = scale_of(range.range.item<float>(), DeviceBits(bits).top());
  return rounded(x, graph_.number(range.min.item<float>()), graph_.number(scale), bits);
}

// With its normalisation in weight and bias.
Value LayerWriter::folded_conv(const ConvLayer& layer, const Value& x) {
  std::vector<Value> inputs{activation(x, layer.input, layer.bits)};
  const at::Tensor weight = folded_weight(layer), bias = folded_bias(layer);
  if (is_float_bits(layer.bits)) {
    inputs.push_back(graph_.constant(weight, "weight"));
    if (bias.defined()) inputs.push_back(graph_.constant(bias, "bias"));
  } else {
    const float input_scale = integer_range(layer.input, layer.bits).scale;
    const SymmetricWeight w = symmetric(weight, bias, input_scale);
    inputs.push_back(scaled_codes(w.code, w.scale, 0));
    const at::Tensor unit = w.scale * input_scale;
    if (bias.defined()) inputs.push_back(scaled_codes((bias / unit).round().to(at::kInt), unit, 0));
  }
  return graph_.node("Conv", inputs, layer.geometry());
}

Value LayerWriter::convolved(const ConvLayer& layer, const Value& x) {
  if (layer.sums_integers()) return integer_conv(layer, x);
  return graph_.node("Conv",
                     {activation(x, layer.input, layer.bits), exact_weight(layer.weight, layer.bits, false)},
                     layer.geometry());
}

// In kExact what follows a product is written operation by operation, in the order of the evaluation: folded, it would be rounded
// otherwise.
Value LayerWriter::conv(const ConvLayer& layer, const Value& x) {
  expect_codes(layer.bits);
  if (form_ == ExportForm::kQdq || is_float_bits(layer.bits)) return folded_conv(layer, x);
  Value y = convolved(layer, x);
  const auto apply = [&](const char* op, const at::Tensor& values, const char* name) {
    if (values.defined()) y = graph_.node(op, {y, graph_.constant(values.view({-1, 1, 1}), name)});
  };
  apply("Add", layer.bias, "bias");
  apply("Sub", layer.mean, "mean");
  apply("Mul", layer.factor, "factor");
  apply("Add", layer.shift, "shift");
  return y;
}

// Weights transposed, inputs × outputs.
Value LayerWriter::float_product(const LinearLayer& layer, const Value& x) {
  const auto matrix = [&] {
    if (form_ == ExportForm::kExact || is_float_bits(layer.bits))
      return exact_weight(layer.weight, layer.bits, /*transposed=*/true);
    const SymmetricWeight w = symmetric(evaluated(layer.weight, layer.bits), {}, 1);
    return scaled_codes(w.code.t(), w.scale, 1);
  };
  return graph_.node("MatMul", {activation(x, layer.input, layer.bits), matrix()});
}

Value LayerWriter::linear(const LinearLayer& layer, const Value& x) {
  expect_codes(layer.bits);
  const bool sums = form_ == ExportForm::kExact && layer.sums_integers();
  Value y = sums ? integer_product(layer, x) : float_product(layer, x);
  if (!layer.bias.defined()) return y;
  const Range range = measure_range(layer.bias.detach(), RangeGroup::kTensor);
  const at::Tensor bias = decode(encode(layer.bias.detach(), range, layer.bits));
  return graph_.node("Add", {y, graph_.constant(bias, "bias")});
}

// The range of each row is that of the values at hand.
Value LayerWriter::rounded_rows(const Value& x, int bits) {
  const std::vector<OnnxAttribute> of_row{{"axes", std::vector<std::int64_t>{-1}}};
  const Value min = graph_.node("ReduceMin", {x}, of_row);
  const Value range = graph_.node("Sub", {graph_.node("ReduceMax", {x}, of_row), min});
  const Value steps = graph_.number(DeviceBits(bits).top());
  return rounded(x, min, graph_.node("Max", {graph_.node("Div", {range, steps}), graph_.number(1e-8)}), bits);
}

Value LayerWriter::product(const Value& a, const Value& b, int bits) {
  if (form_ == ExportForm::kQdq || is_float_bits(bits)) return graph_.node("MatMul", {a, b});
  return graph_.node("MatMul", {rounded_rows(a, bits), rounded_rows(b, bits)});
}

}  // namespace lowtide
