#include "lowtide/engine/cuda/fused_conv_norm.h"

#include <utility>

#include "lowtide/base/cuda_stream.h"
#include "lowtide/base/error.h"
#include "lowtide/engine/pixels_apart.h"

namespace lowtide::cuda {
namespace {

using Conv = PreparedCudaConv;

bool is_bytes(const Quantized& q) { return q.bits >= 1 && q.bits <= kByteBits && q.scale.numel() == 1; }

Codes codes_of(const Quantized& q) {
  return {q.code.data_ptr<std::uint8_t>(), q.scale.data_ptr<float>(), q.offset.data_ptr<float>(), q.bits};
}

ConvGeometry geometry_of(const ConvShape& shape) {
  const auto number = [](std::int64_t n) { return static_cast<int>(n); };
  ConvGeometry g;
  g.images = number(shape.input[0]);
  g.inputs = number(shape.input[1]);
  g.height = number(shape.input[2]);
  g.width = number(shape.input[3]);
  g.outputs = number(shape.weight[0]);
  g.rows = number(shape.output_height());
  g.cols = number(shape.output_width());
  g.kernel_rows = number(shape.weight[2]);
  g.kernel_cols = number(shape.weight[3]);
  g.stride_rows = number(shape.stride[0]);
  g.stride_cols = number(shape.stride[1]);
  g.pad_rows = number(shape.padding[0]);
  g.pad_cols = number(shape.padding[1]);
  return g;
}

at::Tensor empty_image(const at::Tensor& like, at::ScalarType type) {
  return at::empty(like.sizes(), like.options().dtype(type).memory_format(at::MemoryFormat::ChannelsLast));
}

}  // namespace

FusedConvNorm::FusedConvNorm(const Engine& engine, ConvNormCall call,
                             std::shared_ptr<const PreparedCudaConv> conv, SideStream& aside)
    : engine_(engine),
      aside_(aside),
      call_(std::move(call)),
      conv_(std::move(conv)),
      geometry_(geometry_of(call_.shape)) {
  call_.input.code = contiguous(call_.input.code);
  y_ = convolve(/*with_statistics=*/true);
}

at::Tensor FusedConvNorm::convolve(bool with_statistics) const {
  const ConvGeometry& g = geometry_;
  at::Tensor y = at::empty({g.images, g.outputs, g.rows, g.cols},
                           conv_->numbers.options().memory_format(at::MemoryFormat::ChannelsLast));
  OutputArguments a;
  a.g = g;
  a.x = codes_of(call_.input);
  a.w = conv_->layer;
  a.y = y.data_ptr<float>();
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
  conv_output(a, current_cuda_stream());
  return y;
}

Range FusedConvNorm::range() { return {conv_->tensor(Conv::kMin), conv_->tensor(Conv::kRange)}; }

Quantized FusedConvNorm::encode(const Range& range, DeviceBits bits) {
  if (is_float_bits(bits) || bits > kByteBits) {
    Quantized codes = lowtide::encode(normalise({}, nullptr).value, range, bits);
    keep_for_backward();
    return codes;
  }
  const at::Tensor code = empty_image(y_, at::kByte);
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

Activation FusedConvNorm::normalise(const at::Tensor& residual, at::Tensor* positive) {
  const at::Tensor value = empty_image(y_, at::kFloat);
  NormAddArguments a;
  a.y = y_.data_ptr<float>();
  a.residual = residual.defined() ? residual.data_ptr<float>() : nullptr;
  a.n = y_.numel();
  a.channels = geometry_.outputs;
  a.norm = conv_->constants();
  a.relu = call_.relu;
  a.work = conv_->sum_extremes;
  a.value = value.data_ptr<float>();
  if (positive != nullptr) {
    *positive =
        at::empty({(a.n + 7) / 8}, y_.options().dtype(at::kByte).memory_format(at::MemoryFormat::Contiguous));
    a.positive = positive->data_ptr<std::uint8_t>();
  }
  a.min = conv_->number(Conv::kSumMin);
  a.range = conv_->number(Conv::kSumRange);
  norm_add(a, current_cuda_stream());
  return {value, {conv_->tensor(Conv::kSumMin), conv_->tensor(Conv::kSumRange)}};
}

Activation FusedConvNorm::add(const at::Tensor& residual) {
  const bool keeps_signs = residual.defined() && call_.relu && call_.keeps;
  Activation sum =
      normalise(residual.defined() ? contiguous(residual) : residual, keeps_signs ? &positive_ : nullptr);
  keep_for_backward();
  return sum;
}

void FusedConvNorm::keep_for_backward() {
  if (!call_.keeps || call_.recompute) y_.reset();
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

NormGradients FusedConvNorm::norm_gradient(at::Tensor gradient, const ErrorFormat& format,
                                           bool wants_residual) {
  LOWTIDE_CHECK(!summed_.defined() || summed_.is_same(gradient), "the sums of another gradient were taken");
  NormGradientArguments a;
  a.sums = gradient_sums();
  a.n = y_.numel();
  a.channels = geometry_.outputs;
  at::Tensor masked = gradient;
  if (!summed_.defined()) {
    gradient = contiguous(gradient);
    masked = empty_image(y_, at::kFloat);
    lowtide::cuda::gradient_sums(
        {gradient.data_ptr<float>(), masked.data_ptr<float>(), a.n, a.channels, a.sums},
        current_cuda_stream());
  }
  summed_.reset();
  a.gradient = masked.data_ptr<float>();
  a.work = conv_->error_extremes;
  a.min = conv_->number(Conv::kErrorMin);
  a.range = conv_->number(Conv::kErrorRange);
  const Range range{conv_->tensor(Conv::kErrorMin), conv_->tensor(Conv::kErrorRange)};
  const bool as_codes =
      !format.bifurcate && format.bits >= 1 && format.bits <= kByteBits && !format.noise.values().defined();
  at::Tensor floats;
  if (!as_codes) {
    floats = empty_image(y_, at::kFloat);
    a.error = floats.data_ptr<float>();
  }
  norm_gradient_range(a, current_cuda_stream());
  NormGradients result;
  result.weight = conv_->by_channel.select(0, Conv::kWeightGradient);
  result.bias = conv_->by_channel.select(0, Conv::kBiasGradient);
  if (wants_residual) result.residual = masked;
  if (!as_codes) {
    result.error = quantise_error(floats, format, range);
  } else {
    const at::Tensor code = empty_image(y_, at::kByte);
    a.bits = format.bits;
    a.noisy = format.noise.is_drawn();
    a.counter = counter_of(format.noise.key());
    a.device_step = format.noise.key().device_step;
    a.code = code.data_ptr<std::uint8_t>();
    a.scale = conv_->number(Conv::kErrorScale);
    norm_gradient_encode(a, current_cuda_stream());
    const Quantized error{code, conv_->tensor(Conv::kErrorScale), range.min, format.bits};
    result.error = {error, error};
  }
  y_.reset();
  positive_.reset();
  return result;
}

at::Tensor FusedConvNorm::weight_gradient(const Quantized& error) {
  if (!is_bytes(error)) return engine_.conv2d_weight_gradient(error, call_.input, call_.shape);
  const at::Tensor dw =
      at::empty(call_.shape.weight, conv_->numbers.options().memory_format(at::MemoryFormat::ChannelsLast));
  const WeightGradientArguments a{geometry_, codes_of(error), codes_of(call_.input), conv_->weight_gradient,
                                  dw.data_ptr<float>()};
  aside_.run([&](void* stream) { conv_weight_gradient(a, stream); },
             {error.code, error.scale, error.offset, call_.input.code, call_.input.scale, call_.input.offset,
              dw, conv_->memory.at(1)});
  return dw;
}

at::Tensor FusedConvNorm::input_gradient(const Quantized& error, const OtherGradient& other,
                                         ConvNorm* producer) {
  if (!is_bytes(error))
    return add_gradient(engine_.conv2d_input_gradient(error, conv_->weight, call_.shape), other);
  at::Tensor dx =
      at::empty(call_.shape.input, conv_->numbers.options().memory_format(at::MemoryFormat::ChannelsLast));
  InputGradientArguments a;
  a.g = geometry_;
  a.dy = codes_of(error);
  a.w = conv_->layer;
  a.dx = dx.data_ptr<float>();
  const at::Tensor added = other.value.defined() ? contiguous(other.value) : at::Tensor();
  if (added.defined()) {
    a.other = added.data_ptr<float>();
    a.other_rows = static_cast<int>(added.size(2));
    a.other_cols = static_cast<int>(added.size(3));
    a.other_stride_rows = static_cast<int>(other.stride[0]);
    a.other_stride_cols = static_cast<int>(other.stride[1]);
  }
  if (auto* before = dynamic_cast<FusedConvNorm*>(producer)) {
    a.sums = before->gradient_sums();
    before->summed_ = dx;
  }
  conv_input_gradient(a, current_cuda_stream());
  return dx;
}

}  // namespace lowtide::cuda
