#include "tests/trunk/broken_engine.h"

#include <utility>

namespace lowtide {
namespace {

ConvNormCall with_statistics_of_its_own(ConvNormCall call) {
  call.norm.running_mean = call.norm.running_mean.clone();
  call.norm.running_variance = call.norm.running_variance.clone();
  return call;
}

class BrokenConvNorm final : public ConvNorm {
 public:
  BrokenConvNorm(const Engine& engine, const ConvNormCall& call, Fault fault)
      : engine_(engine),
        call_(fault == Fault::kStillStatistics ? with_statistics_of_its_own(call) : call),
        fault_(fault),
        right_(engine.conv_norm(call_)) {
    if (fault_ != Fault::kMissingMask) return;
    ConvNormCall without_relu = with_statistics_of_its_own(call);
    without_relu.relu = false;
    unmasked_ = engine.conv_norm(without_relu);
  }

  const at::Tensor& output() const override { return right_->output(); }
  Range range() override { return right_->range(); }
  Quantized encode(const Range& range, DeviceBits bits) override {
    if (unmasked_) unmasked_->encode(range, bits);
    return right_->encode(range, bits);
  }
  LayerInput add(const at::Tensor& residual, DeviceBits reader) override {
    if (unmasked_) unmasked_->add(residual, reader);
    return right_->add(residual, reader);
  }

  NormGradients norm_gradient(at::Tensor gradient, const ErrorFormat& format, bool wants_residual) override {
    ErrorFormat used = format;
    if (fault_ == Fault::kOtherNoise) {
      NoiseKey key = format.noise.key();
      key.tensor += 1;
      used.noise = Noise::drawn(key);
    }
    return (unmasked_ ? unmasked_ : right_)->norm_gradient(std::move(gradient), used, wants_residual);
  }

  at::Tensor weight_gradient(const Quantized& error) override { return right_->weight_gradient(error); }

  at::Tensor input_gradient(const Quantized& error, const OtherGradient& other,
                            ConvNorm* /*producer*/) override {
    if (fault_ == Fault::kLostGradient) return right_->input_gradient(error, {}, nullptr);
    if (fault_ != Fault::kSwappedScales || call_.conv->weight.bits == 0)
      return right_->input_gradient(error, other, nullptr);
    Quantized weight = call_.conv->weight;
    weight.scale = weight.scale.flip(0).contiguous();
    at::Tensor result = engine_.conv2d_input_gradient(error, weight, call_.shape);
    return result.add_(right_->input_gradient(error, other, nullptr))
        .sub_(right_->input_gradient(error, {}, nullptr));
  }

 private:
  const Engine& engine_;
  const ConvNormCall call_;
  const Fault fault_;
  std::unique_ptr<ConvNorm> right_, unmasked_;
};

}  // namespace

std::unique_ptr<ConvNorm> BrokenEngine::conv_norm(const ConvNormCall& call) const {
  return std::make_unique<BrokenConvNorm>(*inner_, call, fault_);
}

}  // namespace lowtide
