#include "lowtide/engine/cuda/fused_conv_norm.h"

#include <array>
#include <utility>

#include "lowtide/base/cuda_stream.h"
#include "lowtide/base/error.h"
#include "lowtide/engine/cuda/conv_arguments.h"
#include "lowtide/engine/cuda/depthwise.h"
#include "lowtide/engine/pixels_apart.h"

namespace lowtide::cuda {
namespace {

using Conv = PreparedCudaConv;

}  // namespace

FusedConvNorm::FusedConvNorm(const Engine& engine, ConvNormCall call,
                             std::shared_ptr<const PreparedCudaConv> conv, WeightGradients& weight_gradients)
    : engine_(engine),
      weight_gradients_(weight_gradients),
      call_(std::move(call)),
      conv_(std::move(conv)),
      geometry_(geometry_of(call_.shape)) {
  call_.input.code = contiguous(call_.input.code);
  const bool waits = call_.measures || call_.norm.uses_batch;
  if (call_.shows_output || !stays_resident(geometry_, waits)) convolve_now();
}

void FusedConvNorm::convolve_now() {
  if (!y_.defined()) y_ = convolve(/*with_statistics=*/true);
}

at::Tensor FusedConvNorm::empty_output(at::ScalarType type) const {
  const ConvGeometry& g = geometry_;
  return at::empty({g.images, g.outputs, g.rows, g.cols},
                   conv_->numbers.options().dtype(type).memory_format(at::MemoryFormat::ChannelsLast));
}

OutputArguments FusedConvNorm::output_arguments(bool with_statistics) const {
  OutputArguments a;
  a.g = geometry_;
  a.x = codes_of(call_.input);
  a.w = conv_->layer;
  if (with_statistics) {
    NormStatistics& s = a.statistics;
    const NormParameters& norm = call_.norm;
    s.work = call_.measures || norm.uses_batch ? conv_->statistics : nullptr;
    s.weight = norm.weight.data_ptr<float>();
    s.bias = norm.bias.data_ptr<float>();
    s.running_mean = norm.running_mean.data_ptr<float>();
    s.running_variance = norm.running_variance.data_ptr<float>();
    s.momentum = norm.momentum;
    s.uses_batch = norm.uses_batch;
    s.relu = call_.relu;
    s.out = conv_->constants();
  }
  return a;
}

at::Tensor FusedConvNorm::convolve(bool with_statistics) const {
  at::Tensor y = empty_output(at::kFloat);
  OutputArguments a = output_arguments(with_statistics);
  a.y = y.data_ptr<float>();
  const auto compute = geometry_.depthwise ? depthwise_output : conv_output;
  compute(a, current_cuda_stream());
  return y;
}

Range FusedConvNorm::range() {
  convolve_now();
  return {conv_->tensor(Conv::kMin), conv_->tensor(Conv::kRange)};
}

MeasuredCodes FusedConvNorm::encode_measured(DeviceBits bits) {
  if (y_.defined() || !fits_bytes(bits)) return ConvNorm::encode_measured(bits);
  const Range found{conv_->tensor(Conv::kMin), conv_->tensor(Conv::kRange)};
  return {encode_resident(nullptr, found, bits), found};
}

Quantized FusedConvNorm::encode(const Range& range, DeviceBits bits) {
  if (!y_.defined() && fits_bytes(bits)) return encode_resident(&range, range, bits);
  convolve_now();
  if (!fits_bytes(bits)) {
    Quantized codes = lowtide::encode(normalise({}, nullptr).value, range, bits);
    keep_for_backward();
    return codes;
  }
  const at::Tensor code = empty_output(at::kByte);
  NormEncodeArguments a;
  a.y = y_.data_ptr<float>();
  a.n = y_.numel();
  a.channels = geometry_.outputs;
  a.norm = conv_->constants();
  a.relu = call_.relu;
  a.min = range.min.data_ptr<float>();
  a.range = range.range.data_ptr<float>();
  a.bits = bits;
  a.code = code.data_ptr<std::uint8_t>();
  a.scale = conv_->number(Conv::kScale);
  norm_encode(a, current_cuda_stream());
  keep_for_backward();
  return {code, conv_->tensor(Conv::kScale), range.min, bits};
}

ResidentForwardArguments FusedConvNorm::resident_arguments() {
  ResidentForwardArguments a;
  a.output = output_arguments(/*with_statistics=*/true);
  if (call_.keeps && !call_.recompute) {
    y_ = empty_output(at::kFloat);
    a.output.y = y_.data_ptr<float>();
  }
  return a;
}

Quantized FusedConvNorm::encode_resident(const Range* given, const Range& range, DeviceBits bits) {
  ResidentForwardArguments a = resident_arguments();
  const at::Tensor code = empty_output(at::kByte);
  if (given != nullptr) {
    a.encode.min = given->min.data_ptr<float>();
    a.encode.range = given->range.data_ptr<float>();
  }
  a.encode.relu = call_.relu;
  a.encode.bits = bits;
  a.encode.code = code.data_ptr<std::uint8_t>();
  a.encode.scale = conv_->number(Conv::kScale);
  resident_forward(a, current_cuda_stream());
  return {code, conv_->tensor(Conv::kScale), range.min, bits};
}

NormAddArguments FusedConvNorm::sum_arguments(const at::Tensor& residual, const at::Tensor& value,
                                              at::Tensor* positive) const {
  NormAddArguments a;
  a.residual = residual.defined() ? residual.data_ptr<float>() : nullptr;
  a.n = value.numel();
  a.channels = geometry_.outputs;
  a.norm = conv_->constants();
  a.relu = call_.relu;
  a.work = conv_->sum_extremes;
  a.value = value.data_ptr<float>();
  if (positive != nullptr) {
    *positive = at::empty({(a.n + 7) / 8}, conv_->numbers.options().dtype(at::kByte));
    a.positive = positive->data_ptr<std::uint8_t>();
  }
  a.min = conv_->number(Conv::kSumMin);
  a.range = conv_->number(Conv::kSumRange);
  return a;
}

Activation FusedConvNorm::normalise(const at::Tensor& residual, at::Tensor* positive) {
  const at::Tensor value = empty_output(at::kFloat);
  NormAddArguments a = sum_arguments(residual, value, positive);
  a.y = y_.data_ptr<float>();
  norm_add(a, current_cuda_stream());
  return {value, {conv_->tensor(Conv::kSumMin), conv_->tensor(Conv::kSumRange)}};
}

LayerInput FusedConvNorm::add(const at::Tensor& added, DeviceBits reader) {
  const at::Tensor residual = added.defined() ? contiguous(added) : added;
  if (!y_.defined()) return add_resident(residual, reader);
  const bool keeps_signs = residual.defined() && call_.relu && call_.keeps;
  Activation sum = normalise(residual, keeps_signs ? &positive_ : nullptr);
  keep_for_backward();
  return LayerInput(std::move(sum));
}

LayerInput FusedConvNorm::add_resident(const at::Tensor& residual, DeviceBits reader) {
  ResidentForwardArguments a = resident_arguments();
  const at::Tensor value = empty_output(at::kFloat);
  const bool keeps_signs = residual.defined() && call_.relu && call_.keeps;
  a.add = sum_arguments(residual, value, keeps_signs ? &positive_ : nullptr);
  const Range range{conv_->tensor(Conv::kSumMin), conv_->tensor(Conv::kSumRange)};
  if (!fits_bytes(reader) || !stays_resident(geometry_, /*waits=*/true)) {
    resident_forward(a, current_cuda_stream());
    return LayerInput({value, range});
  }
  const at::Tensor code = empty_output(at::kByte);
  a.reader.bits = reader;
  a.reader.code = code.data_ptr<std::uint8_t>();
  a.reader.scale = conv_->number(Conv::kSumScale);
  resident_forward(a, current_cuda_stream());
  return {Activation(value, range), {code, conv_->tensor(Conv::kSumScale), range.min, reader}};
}

void FusedConvNorm::keep_for_backward() {
  // A depthwise convolution is cheap beside the memory that a large output of it takes until the way back.
  constexpr std::size_t kMostKeptBytes = std::size_t{32} << 20;
  const bool drops = call_.recompute || (geometry_.depthwise && y_.nbytes() > kMostKeptBytes);
  if (!call_.keeps || drops) y_.reset();
}

NormGradientSums FusedConvNorm::gradient_sums() {
  LOWTIDE_CHECK(conv_->has_backward, "a pass without gradients has no way back");
  if (!y_.defined()) y_ = convolve(/*with_statistics=*/false);
  NormGradientSums s;
  s.work = conv_->gradient_sums;
  s.norm = conv_->constants();
  s.relu = call_.relu;
  s.uses_batch = call_.norm.uses_batch;
  s.y = y_.data_ptr<float>();
  s.positive = positive_.defined() ? positive_.data_ptr<std::uint8_t>() : nullptr;
  s.weight_gradient = conv_->row(Conv::kWeightGradient);
  s.bias_gradient = conv_->row(Conv::kBiasGradient);
  s.gradient_mean = conv_->row(Conv::kGradientMean);
  s.slope = conv_->row(Conv::kSlope);
  return s;
}

NormGradientArguments FusedConvNorm::error_arguments(const ErrorFormat& format) {
  NormGradientArguments a;
  a.sums = gradient_sums();
  a.n = y_.numel();
  a.channels = geometry_.outputs;
  a.work = conv_->error_extremes;
  a.min = conv_->number(Conv::kErrorMin);
  a.range = conv_->number(Conv::kErrorRange);
  a.bits = format.bits;
  a.noisy = format.noise.is_drawn();
  a.counter = counter_of(format.noise.key());
  a.device_step = format.noise.key().device_step;
  a.scale = conv_->number(Conv::kErrorScale);
  return a;
}

NormGradients FusedConvNorm::parameter_gradients() const {
  NormGradients result;
  result.weight = conv_->by_channel.select(0, Conv::kWeightGradient);
  result.bias = conv_->by_channel.select(0, Conv::kBiasGradient);
  return result;
}

NormGradients FusedConvNorm::error_codes(NormGradientArguments& a, const ErrorFormat& format) {
  const at::Tensor code = empty_output(at::kByte);
  a.code = code.data_ptr<std::uint8_t>();
  const Quantized error{code, conv_->tensor(Conv::kErrorScale), conv_->tensor(Conv::kErrorMin), format.bits};
  NormGradients result = parameter_gradients();
  result.error = {error, error};
  return result;
}

NormGradients FusedConvNorm::norm_gradient(at::Tensor gradient, const ErrorFormat& format,
                                           bool wants_residual) {
  LOWTIDE_CHECK(!summed_.defined() || summed_.is_same(gradient), "the sums of another gradient were taken");
  NormGradientArguments a = error_arguments(format);
  at::Tensor masked = gradient;
  if (!summed_.defined()) {
    gradient = contiguous(gradient);
    masked = empty_output(at::kFloat);
    lowtide::cuda::gradient_sums(
        {gradient.data_ptr<float>(), masked.data_ptr<float>(), a.n, a.channels, a.sums},
        current_cuda_stream());
  }
  summed_.reset();
  a.gradient = masked.data_ptr<float>();
  NormGradients result;
  if (format.is_bytes()) {
    result = error_codes(a, format);
    norm_gradient_range(a, current_cuda_stream());
    norm_gradient_encode(a, current_cuda_stream());
  } else {
    const at::Tensor floats = empty_output(at::kFloat);
    a.error = floats.data_ptr<float>();
    norm_gradient_range(a, current_cuda_stream());
    const Range range{conv_->tensor(Conv::kErrorMin), conv_->tensor(Conv::kErrorRange)};
    result = parameter_gradients();
    result.error = quantise_error(floats, format, range);
  }
  if (wants_residual) result.residual = masked;
  y_.reset();
  positive_.reset();
  return result;
}

at::Tensor FusedConvNorm::weight_gradient(const Quantized& error) {
  if (!is_bytes(error)) return engine_.conv2d_weight_gradient(error, call_.input, call_.shape);
  const at::Tensor dw =
      at::empty(call_.shape.weight, conv_->numbers.options().memory_format(at::MemoryFormat::ChannelsLast));
  const at::Tensor products = at::empty({static_cast<std::int64_t>(weight_gradient_product_bytes(geometry_))},
                                        conv_->numbers.options().dtype(at::kByte));
  weight_gradients_.add({geometry_, codes_of(error), codes_of(call_.input), conv_->weight_gradient,
                         dw.data_ptr<float>(), products.data_ptr<std::uint8_t>()},
                        {error.code, error.scale, error.offset, call_.input.code, call_.input.scale,
                         call_.input.offset, dw, products, conv_->memory.at(1)});
  return dw;
}

InputGradientArguments FusedConvNorm::gradient_arguments(const Quantized& error, const at::Tensor& other,
                                                         const std::array<std::int64_t, 2>& stride) const {
  InputGradientArguments a;
  a.g = geometry_;
  a.dy = codes_of(error);
  a.w = conv_->layer;
  if (other.defined()) {
    a.other = other.data_ptr<float>();
    a.other_rows = static_cast<int>(other.size(2));
    a.other_cols = static_cast<int>(other.size(3));
    a.other_stride_rows = static_cast<int>(stride[0]);
    a.other_stride_cols = static_cast<int>(stride[1]);
  }
  return a;
}

at::Tensor FusedConvNorm::input_gradient(const Quantized& error, const OtherGradient& other,
                                         ConvNorm* producer) {
  if (!is_bytes(error))
    return add_gradient(engine_.conv2d_input_gradient(error, conv_->weight, call_.shape), other);
  at::Tensor dx =
      at::empty(call_.shape.input, conv_->numbers.options().memory_format(at::MemoryFormat::ChannelsLast));
  // A depthwise convolution's gradient is added to another reader's afterwards, and then it is not yet the one to be summed.
  const bool adds_later = geometry_.depthwise && other.value.defined();
  const at::Tensor added = other.value.defined() && !adds_later ? contiguous(other.value) : at::Tensor();
  InputGradientArguments a = gradient_arguments(error, added, other.stride);
  a.dx = dx.data_ptr<float>();
  if (auto* before = dynamic_cast<FusedConvNorm*>(producer); before != nullptr && !adds_later) {
    a.sums = before->gradient_sums();
    before->summed_ = dx;
  }
  const auto compute = geometry_.depthwise ? depthwise_input_gradient : conv_input_gradient;
  compute(a, current_cuda_stream());
  return adds_later ? add_gradient(dx, other) : dx;
}

NormGradients FusedConvNorm::producer_gradient(const Quantized& error, const OtherGradient& other,
                                               ConvNorm& producer, const ErrorFormat& format,
                                               bool wants_residual) {
  auto* before = dynamic_cast<FusedConvNorm*>(&producer);
  const bool stays = before != nullptr && is_bytes(error) && format.is_bytes() &&
                     other.stride == std::array<std::int64_t, 2>{1, 1} &&
                     stays_resident(geometry_, /*waits=*/true);
  if (!stays) return ConvNorm::producer_gradient(error, other, producer, format, wants_residual);
  const at::Tensor added = other.value.defined() ? contiguous(other.value) : at::Tensor();
  ResidentBackwardArguments a;
  a.gradient = gradient_arguments(error, added, other.stride);
  a.error = before->error_arguments(format);
  a.gradient.sums = a.error.sums;
  NormGradients result = before->error_codes(a.error, format);
  if (wants_residual) {
    result.residual = before->empty_output(at::kFloat);
    a.gradient.dx = result.residual.data_ptr<float>();
  }
  resident_backward(a, current_cuda_stream());
  before->y_.reset();
  before->positive_.reset();
  return result;
}

}  // namespace lowtide::cuda
