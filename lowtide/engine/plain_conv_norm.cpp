#include "lowtide/engine/plain_conv_norm.h"

#include <utility>

#include "lowtide/engine/cpu/normalisation.h"
#include "lowtide/engine/pixels_apart.h"

namespace lowtide {

// Batch normalisation by itself.
class PlainNorm {
 public:
  struct Gradients {
    at::Tensor input, weight, bias;
  };

  virtual ~PlainNorm() = default;
  virtual at::Tensor forward(const at::Tensor& y) = 0;
  virtual Gradients backward(const at::Tensor& y, const at::Tensor& gradient) = 0;

  static std::unique_ptr<PlainNorm> make(const NormParameters& parameters, const at::Device& device);
};

namespace {

// libtorch's own cuts its sums by the number of threads.
class CpuNorm final : public PlainNorm {
 public:
  explicit CpuNorm(NormParameters parameters) : parameters_(std::move(parameters)) {}

  at::Tensor forward(const at::Tensor& y) override {
    cpu::ChannelStatistics statistics;
    if (parameters_.uses_batch) statistics = cpu::ChannelMoments().of(y);
    norm_ = cpu::start_normalisation(parameters_, /*relu=*/false, y.numel() / y.size(1),
                                     parameters_.uses_batch ? &statistics : nullptr);
    return cpu::map_and_add(y, norm_.map, {}).value;
  }

  Gradients backward(const at::Tensor& y, const at::Tensor& gradient) override {
    const cpu::MapGradients result =
        cpu::MapBackward(y, norm_.map, norm_.scatter, {}).of(gradient, /*wants_residual=*/false);
    return {result.input, result.weight, result.bias};
  }

 private:
  const NormParameters parameters_;
  cpu::Normalisation norm_;
};

class LibtorchNorm final : public PlainNorm {
 public:
  explicit LibtorchNorm(NormParameters parameters) : p_(std::move(parameters)) {}

  at::Tensor forward(const at::Tensor& y) override {
    at::Tensor z;
    std::tie(z, mean_, inverse_deviation_) =
        at::native_batch_norm(y, p_.weight, p_.bias, p_.running_mean, p_.running_variance, p_.uses_batch,
                              p_.momentum, kNormEpsilon);
    return z;
  }

  Gradients backward(const at::Tensor& y, const at::Tensor& gradient) override {
    auto [dx, dweight, dbias] =
        at::native_batch_norm_backward(gradient, y, p_.weight, p_.running_mean, p_.running_variance, mean_,
                                       inverse_deviation_, p_.uses_batch, kNormEpsilon, {true, true, true});
    return {dx, dweight, dbias};
  }

 private:
  const NormParameters p_;
  at::Tensor mean_, inverse_deviation_;
};

}  // namespace

std::unique_ptr<PlainNorm> PlainNorm::make(const NormParameters& parameters, const at::Device& device) {
  if (device.is_cpu()) return std::make_unique<CpuNorm>(parameters);
  return std::make_unique<LibtorchNorm>(parameters);
}

PlainConvNorm::PlainConvNorm(const Engine& engine, ConvNormCall call)
    : engine_(engine),
      call_(std::move(call)),
      y_(engine.conv2d(call_.input, call_.conv->weight, call_.shape)),
      norm_(PlainNorm::make(call_.norm, y_.device())) {}

PlainConvNorm::~PlainConvNorm() = default;

const at::Tensor& PlainConvNorm::result() {
  if (!z_.defined()) {
    z_ = norm_->forward(contiguous(y_));
    if (call_.relu) z_.relu_();
  }
  return z_;
}

Range PlainConvNorm::range() { return measure_range(result(), RangeGroup::kTensor); }

Quantized PlainConvNorm::encode(const Range& range, DeviceBits bits) {
  Quantized codes = lowtide::encode(result(), range, bits);
  keep_for_backward();
  return codes;
}

LayerInput PlainConvNorm::add(const at::Tensor& residual, DeviceBits) {
  z_ = norm_->forward(contiguous(y_));
  if (residual.defined()) z_.add_(residual);
  if (call_.relu) z_.relu_();
  LayerInput sum(z_);
  z_ = z_.detach();  // another tensor: autograd's node will own this one, and the sum owns the node
  keep_for_backward();
  return sum;
}

void PlainConvNorm::keep_for_backward() {
  if (!call_.keeps || call_.recompute) y_.reset();
  if (!call_.keeps || !call_.relu) z_.reset();
}

NormGradients PlainConvNorm::norm_gradient(at::Tensor gradient, const ErrorFormat& format,
                                           bool wants_residual) {
  gradient = contiguous(gradient);
  if (call_.relu) gradient = at::threshold_backward(gradient, z_, 0);
  z_.reset();
  if (!y_.defined()) y_ = engine_.conv2d(call_.input, call_.conv->weight, call_.shape);
  const PlainNorm::Gradients result = norm_->backward(contiguous(y_), gradient);
  y_.reset();
  return {quantise_error(result.input, format), result.weight, result.bias,
          wants_residual ? gradient : at::Tensor()};
}

at::Tensor PlainConvNorm::weight_gradient(const Quantized& error) {
  return engine_.conv2d_weight_gradient(error, call_.input, call_.shape);
}

at::Tensor PlainConvNorm::input_gradient(const Quantized& error, const OtherGradient& other,
                                         ConvNorm* /*producer*/) {
  return add_gradient(engine_.conv2d_input_gradient(error, call_.conv->weight, call_.shape), other);
}

}  // namespace lowtide
