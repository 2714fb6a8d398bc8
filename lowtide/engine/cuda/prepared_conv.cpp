#include "lowtide/engine/cuda/prepared_conv.h"

#include "lowtide/base/cuda_stream.h"
#include "lowtide/engine/cuda/depthwise.h"
#include "lowtide/quant/quantizer.h"

namespace lowtide::cuda {
namespace {

// Parts of one allocation, each aligned for any kind of load.
class Arena {
 public:
  // Called twice with the same requests: first they are added up, then they are served.
  std::int64_t add(std::size_t bytes) {
    const std::int64_t at = size_;
    size_ += static_cast<std::int64_t>((bytes + kAlignment - 1) / kAlignment * kAlignment);
    return at;
  }
  at::Tensor allocate(const at::Device& device, bool zeroed) const {
    const auto options = at::TensorOptions(at::kByte).device(device);
    return zeroed ? at::zeros({size_}, options) : at::empty({size_}, options);
  }

 private:
  static constexpr std::size_t kAlignment = 256;
  std::int64_t size_ = 0;
};

// Where the memory of one convolution lies in the two arenas.
struct Places {
  std::int64_t code, scale, offset, forward, tap_prefix, tap_value, limbs, limb_scale, limb_sums, depthwise;
  std::int64_t statistics, gradient_sums, sum_extremes, error_extremes, weight_gradient;
};

ConvGeometry weight_geometry(const at::Tensor& w, std::int64_t groups) {
  ConvGeometry g;
  g.depthwise = groups > 1;
  g.outputs = static_cast<int>(w.size(0));
  g.inputs = static_cast<int>(w.size(1));
  g.kernel_rows = static_cast<int>(w.size(2));
  g.kernel_cols = static_cast<int>(w.size(3));
  return g;
}

Places place(const ConvGeometry& g, bool keeps, Arena& plain, Arena& zeroed) {
  const auto outputs = static_cast<std::size_t>(g.outputs), inputs = static_cast<std::size_t>(g.inputs),
             taps = static_cast<std::size_t>(g.taps());
  Places p{};
  p.code = plain.add(outputs * taps * inputs);
  p.scale = plain.add(outputs * sizeof(float));
  p.offset = plain.add(outputs * sizeof(float));
  p.statistics = zeroed.add(statistics_bytes(g.outputs));
  p.sum_extremes = zeroed.add(kExtremesBytes);
  if (keeps) {
    p.gradient_sums = zeroed.add(statistics_bytes(g.outputs));
    p.error_extremes = zeroed.add(kExtremesBytes);
    p.weight_gradient = zeroed.add(g.depthwise ? depthwise_weight_gradient_work_bytes(g.outputs)
                                               : weight_gradient_work_bytes(g));
  }
  if (g.depthwise) {
    p.depthwise = plain.add(outputs * sizeof(DepthwiseChannel));
    return p;
  }
  p.forward = plain.add(packed_forward_bytes(g.outputs, g.taps(), g.inputs));
  p.tap_prefix =
      plain.add(static_cast<std::size_t>((g.kernel_rows + 1) * (g.kernel_cols + 1)) * outputs * sizeof(int));
  if (!keeps) return p;
  p.tap_value = plain.add(taps * inputs * sizeof(float));
  p.limbs = plain.add(packed_limb_bytes(g.outputs, g.taps(), g.inputs));
  p.limb_scale = plain.add(sizeof(float));
  if (may_stay(g.outputs, g.kernel_rows, g.kernel_cols, g.inputs))
    p.limb_sums = zeroed.add(kLimbs * inputs * sizeof(int));
  return p;
}

template <typename T>
T* at_place(const at::Tensor& memory, std::int64_t place) {
  return reinterpret_cast<T*>(memory.data_ptr<std::uint8_t>() + place);
}

at::Tensor view_of(const at::Tensor& memory, std::int64_t place, std::int64_t bytes, at::ScalarType type) {
  return memory.narrow(0, place, bytes).view(type);
}

// Where the codes of a trunk's weight lie, which is encoded here.
Quantized codes_at(const Places& p, const at::Tensor& weight, DeviceBits bits, const at::Tensor& plain) {
  const std::int64_t rows = static_cast<std::int64_t>(sizeof(float)) * weight.size(0);
  const at::Tensor code = view_of(plain, p.code, weight.numel(), at::kByte);
  return {code.as_strided(weight.sizes(), weight.strides()), view_of(plain, p.scale, rows, at::kFloat),
          view_of(plain, p.offset, rows, at::kFloat), bits};
}

void fill(PreparedCudaConv& conv, const Quantized& weight, std::int64_t groups, const Places& p,
          const at::Tensor& plain, const at::Tensor& zeroed, bool keeps) {
  const ConvGeometry g = weight_geometry(weight.code, groups);
  conv.has_backward = keeps;
  conv.weight = weight;
  WeightLayer& layer = conv.layer;
  layer.outputs = g.outputs;
  layer.kernel_rows = g.kernel_rows;
  layer.kernel_cols = g.kernel_cols;
  layer.inputs = g.inputs;
  layer.bits = weight.bits;
  layer.code = weight.code.data_ptr<std::uint8_t>();
  layer.scale = weight.scale.data_ptr<float>();
  layer.offset = weight.offset.data_ptr<float>();
  conv.statistics = at_place<void*>(zeroed, p.statistics);
  conv.sum_extremes = at_place<void*>(zeroed, p.sum_extremes);
  if (keeps) {
    conv.gradient_sums = at_place<void*>(zeroed, p.gradient_sums);
    conv.error_extremes = at_place<void*>(zeroed, p.error_extremes);
    conv.weight_gradient = at_place<void*>(zeroed, p.weight_gradient);
  }
  if (g.depthwise) {
    layer.depthwise = at_place<DepthwiseChannel>(plain, p.depthwise);
    return;
  }
  layer.forward = at_place<std::uint32_t>(plain, p.forward);
  layer.tap_prefix = at_place<int>(plain, p.tap_prefix);
  if (!keeps) return;
  layer.tap_value = at_place<float>(plain, p.tap_value);
  layer.limbs = at_place<std::uint32_t>(plain, p.limbs);
  layer.limb_scale = at_place<float>(plain, p.limb_scale);
  if (may_stay(g.outputs, g.kernel_rows, g.kernel_cols, g.inputs))
    layer.limb_sums = at_place<int>(zeroed, p.limb_sums);
}

}  // namespace

bool has_kernels(const ConvWeight& conv) {
  const ConvGeometry g = weight_geometry(conv.weight, conv.groups);
  if (!fits_bytes(conv.bits) || !conv.weight.device().is_cuda()) return false;
  if (!g.depthwise) return g.taps() <= kMostTaps;
  return conv.groups == g.outputs && g.inputs == 1 && conv.stride <= 2 &&
         has_depthwise(g.outputs, g.kernel_rows, g.kernel_cols);
}

std::vector<std::shared_ptr<const PreparedConv>> prepare(const std::vector<ConvWeight>& weights, bool keeps) {
  std::vector<std::shared_ptr<const PreparedConv>> result(weights.size());
  std::vector<Places> places(weights.size());
  Arena plain_size, zeroed_size;
  std::int64_t channels = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (has_kernels(weights[i])) {
      places[i] =
          place(weight_geometry(weights[i].weight, weights[i].groups), keeps, plain_size, zeroed_size);
      channels += weights[i].weight.size(0);
      continue;
    }
    auto conv = std::make_shared<PreparedConv>();
    conv->weight = encode_rows(weights[i].weight, weights[i].bits);
    result[i] = std::move(conv);
  }
  if (channels == 0) return result;
  const at::Device device = weights[0].weight.device();
  const at::Tensor plain = plain_size.allocate(device, false), zeroed = zeroed_size.allocate(device, true);
  const auto floats = at::TensorOptions(at::kFloat).device(device);
  const at::Tensor by_channel = at::empty({PreparedCudaConv::kRows * channels}, floats);
  const at::Tensor numbers =
      at::empty({PreparedCudaConv::kNumbers * static_cast<std::int64_t>(weights.size())}, floats);
  std::vector<WeightLayer> layers, depthwise;
  std::int64_t row = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (result[i]) continue;
    auto conv = std::make_shared<PreparedCudaConv>();
    const at::Tensor weight = contiguous(weights[i].weight);
    fill(*conv, codes_at(places[i], weight, weights[i].bits, plain), weights[i].groups, places[i], plain,
         zeroed, keeps);
    conv->layer.weight = weight.data_ptr<float>();
    conv->memory = {plain, zeroed, weight};
    const std::int64_t outputs = conv->layer.outputs;
    conv->by_channel = by_channel.narrow(0, PreparedCudaConv::kRows * row, PreparedCudaConv::kRows * outputs)
                           .view({PreparedCudaConv::kRows, outputs});
    conv->numbers = numbers.narrow(0, static_cast<std::int64_t>(i) * PreparedCudaConv::kNumbers,
                                   PreparedCudaConv::kNumbers);
    row += outputs;
    (conv->layer.depthwise == nullptr ? layers : depthwise).push_back(conv->layer);
    result[i] = std::move(conv);
  }
  encode_weights(layers.data(), static_cast<int>(layers.size()), current_cuda_stream());
  encode_depthwise_weights(depthwise.data(), static_cast<int>(depthwise.size()), current_cuda_stream());
  return result;
}

std::shared_ptr<const PreparedCudaConv> pack(const Quantized& weight, bool keeps) {
  Arena plain_size, zeroed_size;
  constexpr std::int64_t kGroups = 1;
  const Places places = place(weight_geometry(weight.code, kGroups), keeps, plain_size, zeroed_size);
  const at::Tensor plain = plain_size.allocate(weight.code.device(), false),
                   zeroed = zeroed_size.allocate(weight.code.device(), true);
  auto conv = std::make_shared<PreparedCudaConv>();
  fill(*conv, {contiguous(weight.code), weight.scale, weight.offset, weight.bits}, kGroups, places, plain,
       zeroed, keeps);
  conv->memory = {plain, zeroed};
  encode_weights(&conv->layer, 1, current_cuda_stream());
  return conv;
}

}  // namespace lowtide::cuda
