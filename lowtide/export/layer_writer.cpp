#include "lowtide/export/layer_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lowtide/base/error.h"

namespace lowtide {
namespace {

float top_code(int bits) { return static_cast<float>((1 << bits) - 1); }

// Values of each row, shaped so that they meet the rows of x; as columns where x is transposed.
at::Tensor by_row(const at::Tensor& values, const at::Tensor& x) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(x.dim()), 1);
  shape[0] = values.numel();
  return values.view(shape);
}

// The weight as it is evaluated, as floats.
at::Tensor evaluated(const at::Tensor& weight, const at::Tensor& factor, int bits) {
  const at::Tensor values = decode(encode_rows(weight.detach(), bits));
  return factor.defined() ? values * by_row(factor, values) : values;
}

// Of a convolution with what follows it; undefined where there is none.
at::Tensor folded_bias(const ConvLayer& layer) {
  if (!layer.factor.defined()) return layer.bias;
  return layer.bias.defined() ? layer.bias * layer.factor + layer.shift : layer.shift;
}

// value = (code - zero_point) · scale, over a range that holds 0 too: padding must have a code.
struct IntegerRange {
  float scale = 0;
  int zero_point = 0;
};

IntegerRange integer_range(const Range& range, int bits) {
  const float min = range.min.item<float>(), top = top_code(bits);
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

// code · scale + offset, all times the factor of the row. Where that is below 0 the codes are counted from the other end: a
// scale is never negative.
Value LayerWriter::exact_weight(const at::Tensor& weight, const at::Tensor& factor, int bits,
                                bool transposed) {
  const auto stored = [&](const at::Tensor& x) { return transposed ? x.t() : x; };
  if (!fits_bytes(bits)) return graph_.constant(stored(evaluated(weight, factor, bits)), "weight");
  const Quantized q = encode_rows(weight.detach(), bits);
  at::Tensor code = q.code, scale = q.scale, offset = q.offset;
  if (factor.defined()) {
    const int top = (1 << bits) - 1;
    const at::Tensor negative = factor < 0;
    code = at::where(by_row(negative, code), top - code, code);
    offset = at::where(negative, offset + top * scale, offset) * factor;
    scale = scale * factor.abs();
  }
  const Value scaled = scaled_codes(stored(code), scale, transposed ? 1 : 0);
  return graph_.node("Add", {scaled, graph_.constant(stored(by_row(offset, code)), "offset")});
}

Value LayerWriter::exact_activation(const Value& x, const Range& range, int bits) {
  const float top = top_code(bits), scale = scale_of(range.range.item<float>(), top);
  const float min = range.min.item<float>();
  const Value from_zero = min == 0 ? x : graph_.node("Sub", {x, graph_.number(min)});
  Value value;
  if (fits_bytes(bits)) {
    const Value codes_scale = graph_.number(scale),
                zero = graph_.constant(at::zeros({}, at::kByte), "zero_point");
    const Value within = bits == kByteBits
                             ? from_zero  // which QuantizeLinear clamps to its codes
                             : graph_.node("Clip", {from_zero, graph_.number(0), graph_.number(top * scale)});
    value = graph_.node("DequantizeLinear",
                        {graph_.node("QuantizeLinear", {within, codes_scale, zero}), codes_scale, zero});
  } else {
    const Value steps = graph_.node("Div", {from_zero, graph_.number(scale)});
    const Value within = graph_.node("Clip", {steps, graph_.number(0), graph_.number(top)});
    value = graph_.node("Mul", {graph_.node("Round", {within}), graph_.number(scale)});
  }
  return min == 0 ? value : graph_.node("Add", {value, graph_.number(min)});
}

Value LayerWriter::integer_activation(const Value& x, const Range& range, int bits) {
  const IntegerRange codes = integer_range(range, bits);
  const auto byte = [&](int value) { return graph_.constant(at::scalar_tensor(value, at::kByte), "byte"); };
  const Value scale = graph_.number(codes.scale), zero_point = byte(codes.zero_point);
  Value code = graph_.node("QuantizeLinear", {x, scale, zero_point});
  if (bits < kByteBits) code = graph_.node("Clip", {code, byte(0), byte((1 << bits) - 1)});
  return graph_.node("DequantizeLinear", {code, scale, zero_point});
}

Value LayerWriter::activation(const Value& x, const Range& range, int bits) {
  expect_codes(bits);
  if (is_float_bits(bits)) return x;
  return form_ == ExportForm::kExact ? exact_activation(x, range, bits) : integer_activation(x, range, bits);
}

Value LayerWriter::conv(const ConvLayer& layer, const Value& x) {
  std::vector<Value> inputs{activation(x, layer.input, layer.bits)};
  const at::Tensor bias = folded_bias(layer);
  if (form_ == ExportForm::kExact || is_float_bits(layer.bits)) {
    inputs.push_back(exact_weight(layer.weight, layer.factor, layer.bits, /*transposed=*/false));
    if (bias.defined()) inputs.push_back(graph_.constant(bias, "bias"));
  } else {
    const float input_scale = integer_range(layer.input, layer.bits).scale;
    const SymmetricWeight w = symmetric(evaluated(layer.weight, layer.factor, layer.bits), bias, input_scale);
    inputs.push_back(scaled_codes(w.code, w.scale, 0));
    const at::Tensor unit = w.scale * input_scale;
    if (bias.defined()) inputs.push_back(scaled_codes((bias / unit).round().to(at::kInt), unit, 0));
  }
  const auto& [top, left] = layer.padding;
  const auto pair = [](const std::array<std::int64_t, 2>& values) {
    return std::vector<std::int64_t>(values.begin(), values.end());
  };
  return graph_.node("Conv", inputs,
                     {{"kernel_shape", layer.weight.sizes().slice(2).vec()},
                      {"strides", pair(layer.stride)},
                      {"pads", std::vector<std::int64_t>{top, left, top, left}},
                      {"dilations", pair(layer.dilation)},
                      {"group", layer.groups}});
}

Value LayerWriter::matrix(const at::Tensor& weight, int bits) {
  expect_codes(bits);
  if (form_ == ExportForm::kExact || is_float_bits(bits))
    return exact_weight(weight, {}, bits, /*transposed=*/true);
  const SymmetricWeight w = symmetric(evaluated(weight, {}, bits), {}, 1);
  return scaled_codes(w.code.t(), w.scale, 1);
}

Value LayerWriter::bias(const at::Tensor& bias, int bits) {
  const Range range = measure_range(bias.detach(), RangeGroup::kTensor);
  return graph_.constant(decode(encode(bias.detach(), range, bits)), "bias");
}

Value LayerWriter::linear(const LinearLayer& layer, const Value& x) {
  const Value y =
      graph_.node("MatMul", {activation(x, layer.input, layer.bits), matrix(layer.weight, layer.bits)});
  return layer.bias.defined() ? graph_.node("Add", {y, bias(layer.bias, layer.bits)}) : y;
}

// The quantiser written out: QuantizeLinear has no scales by row that are computed.
Value LayerWriter::rounded_rows(const Value& x, int bits) {
  const std::vector<OnnxAttribute> of_row{{"axes", std::vector<std::int64_t>{-1}}};
  const Value min = graph_.node("ReduceMin", {x}, of_row);
  const Value range = graph_.node("Sub", {graph_.node("ReduceMax", {x}, of_row), min});
  const Value top = graph_.number(top_code(bits));
  const Value scale = graph_.node("Max", {graph_.node("Div", {range, top}), graph_.number(1e-8)});
  const Value steps = graph_.node("Div", {graph_.node("Sub", {x, min}), scale});
  const Value code = graph_.node("Round", {graph_.node("Clip", {steps, graph_.number(0), top})});
  return graph_.node("Add", {graph_.node("Mul", {code, scale}), min});
}

Value LayerWriter::product(const Value& a, const Value& b, int bits) {
  if (form_ == ExportForm::kQdq || is_float_bits(bits)) return graph_.node("MatMul", {a, b});
  return graph_.node("MatMul", {rounded_rows(a, bits), rounded_rows(b, bits)});
}

}  // namespace lowtide
