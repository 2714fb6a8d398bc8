#include "lowtide/engine/integer/fused_conv_norm.h"

#include <optional>
#include <utility>

#include "lowtide/engine/integer/tuning.h"

namespace lowtide::integer {
namespace {

// Whether a convolution's output had better be computed again for the backward pass than kept.
bool is_cheap(const ConvNormCall& call) {
  if (!fits_bytes(call.input.bits)) return false;
  const auto& weight = call.shape.weight;
  const std::int64_t quads = (weight[1] + kQuad - 1) / kQuad * weight[2] * weight[3];
  return call.shape.groups == 1 && quads <= kRecomputedQuads;
}

}  // namespace

FusedConvNorm::FusedConvNorm(const IntegerEngine& engine, ConvNormCall call)
    : engine_(engine), call_(std::move(call)) {
  const bool takes_statistics = call_.measures || call_.norm.uses_batch;
  cpu::ChannelMoments moments;
  y_ = contiguous(
      engine_.conv2d(call_.input, call_.conv->weight, call_.shape, takes_statistics ? &moments : nullptr));
  if (takes_statistics) statistics_ = moments.of(y_);
  norm_ = cpu::start_normalisation(call_.norm, call_.relu, y_.numel() / y_.size(1),
                                   takes_statistics ? &statistics_ : nullptr);
}

Range FusedConvNorm::range() { return norm_.map.range(statistics_); }

Quantized FusedConvNorm::encode(const Range& range, DeviceBits bits) {
  Quantized codes = fits_bytes(bits)
                        ? cpu::encode_mapped(y_, norm_.map, range, bits)
                        : lowtide::encode(cpu::map_and_add(y_, norm_.map, {}).value, range, bits);
  keep_for_backward();
  return codes;
}

LayerInput FusedConvNorm::add(const at::Tensor& residual, DeviceBits) {
  cpu::MappedSum sum = cpu::map_and_add(y_, norm_.map, residual);
  if (call_.keeps) positive_ = std::move(sum.positive);
  keep_for_backward();
  return LayerInput({std::move(sum.value), std::move(sum.range)});
}

void FusedConvNorm::keep_for_backward() {
  statistics_ = {};
  if (!call_.keeps || call_.recompute || is_cheap(call_)) y_.reset();
}

cpu::MapBackward& FusedConvNorm::backward() {
  if (!backward_) {
    const at::Tensor y =
        y_.defined() ? std::move(y_) : engine_.conv2d(call_.input, call_.conv->weight, call_.shape);
    backward_ =
        std::make_unique<cpu::MapBackward>(contiguous(y), norm_.map, norm_.scatter, std::move(positive_));
  }
  return *backward_;
}

NormGradients FusedConvNorm::norm_gradient(at::Tensor gradient, const ErrorFormat& format,
                                           bool wants_residual) {
  std::optional<ChunkEncoder::Format> codes;
  if (format.is_bytes()) codes = format.codes();
  cpu::MapGradients result = backward().of(contiguous(gradient), wants_residual, codes);
  backward_.reset();
  const LayerError error = codes ? LayerError{result.input_codes, result.input_codes}
                                 : quantise_error(result.input, format, result.input_range);
  return {error, result.weight, result.bias, result.residual};
}

at::Tensor FusedConvNorm::weight_gradient(const Quantized& error) {
  return engine_.conv2d_weight_gradient(error, call_.input, call_.shape);
}

at::Tensor FusedConvNorm::input_gradient(const Quantized& error, const OtherGradient& other,
                                         ConvNorm* producer) {
  auto* before = dynamic_cast<FusedConvNorm*>(producer);
  return engine_.conv2d_input_gradient(error, call_.conv->weight, call_.shape, other,
                                       before ? &before->backward() : nullptr);
}

}  // namespace lowtide::integer
