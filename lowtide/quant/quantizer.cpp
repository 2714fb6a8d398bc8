#include "lowtide/quant/quantizer.h"

#include <fmt/format.h>

#include <utility>

#include "lowtide/base/cuda_stream.h"
#include "lowtide/base/error.h"
#include "lowtide/base/random.h"
#include "lowtide/base/shards.h"
#include "lowtide/quant/one_number.h"
#include "lowtide/quant/quantizer_kernels.h"
#include "lowtide/schedule/bits.h"

namespace lowtide {
namespace {

at::MemoryFormat contiguous_format(const at::Tensor& x) {
  return x.dim() == 4 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
}

struct Rows {
  std::int64_t count, length;
};

Rows rows_of(const at::Tensor& x, std::int64_t groups) {
  if (groups == 1) return {1, x.numel()};
  const bool by_last_dimension = x.dim() == 3 && groups == x.size(0) * x.size(1);
  LOWTIDE_CHECK(groups == x.size(0) || by_last_dimension,
                fmt::format("{} ranges for {} rows", groups, x.size(0)));
  return {groups, x.numel() / groups};
}

struct Target {
  const QuantizerKernels& kernels;
  void* stream;
};

Target target_of(const at::Tensor& x) {
  if (x.device().is_cpu()) return {kCpuQuantizer, nullptr};
#if defined(LOWTIDE_WITH_CUDA)
  if (x.device().is_cuda()) return {kCudaQuantizer, current_cuda_stream(x.device().index())};
#endif
  invariant_failed("a device with a quantiser", __FILE__, __LINE__, x.device().str());
}

}  // namespace

// A step is below 2^50, so that of its upper word 18 bits are taken: the shard's, below 2^14, are above them.
constexpr int kStepBitsAbove32 = 18;
static_assert(kMostSteps >> 32 < 1 << kStepBitsAbove32 && kMostShards <= 1 << (32 - kStepBitsAbove32));

NoiseCounter counter_of(const NoiseKey& key) {
  const auto low = [](std::uint64_t v) { return static_cast<std::uint32_t>(v); };
  const auto step = static_cast<std::uint64_t>(key.step);
  return {low(key.seed), low(key.seed >> 32) ^ (static_cast<std::uint32_t>(RandomPurpose::kRounding) << 24),
          low(step), low(step >> 32) | key.shard << kStepBitsAbove32, key.tensor};
}

at::Tensor contiguous(const at::Tensor& x) { return x.contiguous(contiguous_format(x)); }

Range measure_range(const at::Tensor& input, RangeGroup group) {
  LOWTIDE_CHECK(input.numel() > 0, "the range of no elements");
  LOWTIDE_CHECK(input.scalar_type() == at::kFloat, "the quantiser reads float32");
  const at::Tensor x = contiguous(input);
  const std::int64_t groups = group == RangeGroup::kRow ? x.size(0) : 1;
  const Rows rows = rows_of(x, groups);
  Range result{at::empty({groups}, x.options()), at::empty({groups}, x.options())};
  const Target target = target_of(x);
  const at::Tensor scratch =
      x.device().is_cpu() ? at::Tensor() : at::empty({kRangeScratchBytes}, x.options().dtype(at::kByte));
  target.kernels.measure_range(
      {x.data_ptr<float>(), result.min.data_ptr<float>(), result.range.data_ptr<float>(), rows.count,
       rows.length, scratch.defined() ? scratch.data_ptr() : nullptr},
      target.stream);
  return result;
}

Range measure_position_ranges(const at::Tensor& input) {
  LOWTIDE_CHECK(input.dim() == 3 && input.numel() > 0, "items × positions × numbers");
  const std::int64_t items = input.size(0);
#if defined(LOWTIDE_WITH_CUDA)
  if (input.is_cuda()) {
    const at::Tensor x = input.contiguous();
    const std::int64_t positions = x.size(1);
    const Range result{at::empty({items * positions}, x.options()),
                       at::empty({items * positions}, x.options())};
    measure_positions_on_gpu({.x = x.data_ptr<float>(),
                              .min = result.min.data_ptr<float>(),
                              .range = result.range.data_ptr<float>(),
                              .items = items,
                              .positions = positions,
                              .length = x.size(2)},
                             current_cuda_stream(x.device().index()));
    return result;
  }
#endif
  const at::Tensor low = input.amin({0, 2}), high = input.amax({0, 2});
  return {low.repeat({items}), (high - low).repeat({items})};
}

Quantized encode(const at::Tensor& input, const Range& range, DeviceBits device_bits, const Noise& noise) {
  const int bits = device_bits.bits;
  if (is_float_bits(bits)) return {contiguous(input), {}, {}, 0};
  LOWTIDE_CHECK(bits >= 1, fmt::format("cannot quantise to {} bits", bits));
  const at::Tensor x = contiguous(input);
  const Rows rows = rows_of(x, range.min.numel());
  const auto code_type = fits_bytes(bits) ? at::kByte : at::kInt;
  Quantized result{at::empty_like(x, x.options().dtype(code_type), contiguous_format(x)),
                   at::empty_like(range.min), range.min, device_bits};
  const NoiseCounter counter = counter_of(noise.key());
  const at::Tensor given = noise.values().defined() ? contiguous(noise.values()) : at::Tensor();
  EncodeArguments arguments;
  arguments.x = x.data_ptr<float>();
  arguments.min = range.min.data_ptr<float>();
  arguments.range = range.range.data_ptr<float>();
  arguments.scale = result.scale.data_ptr<float>();
  arguments.code = result.code.data_ptr();
  arguments.rows = rows.count;
  arguments.length = rows.length;
  arguments.bits = device_bits;
  arguments.device_step = noise.key().device_step;
  arguments.counter = noise.is_drawn() ? &counter : nullptr;
  arguments.noise = given.defined() ? given.data_ptr<float>() : nullptr;
  const Target target = target_of(x);
  target.kernels.encode(arguments, target.stream);
  return result;
}

Quantized encode_rows(const at::Tensor& weight, DeviceBits bits) {
  return encode(weight, is_float_bits(bits) ? Range{} : measure_range(weight, RangeGroup::kRow), bits);
}

at::Tensor top_code(DeviceBits bits, const at::TensorOptions& options) {
  if (bits.on_device == nullptr) return at::full({1}, bits.top(), options);
  const at::Tensor number =
      at::from_blob(const_cast<std::uint8_t*>(bits.on_device), {1}, options.dtype(at::kByte)).to(at::kInt);
  return at::ones_like(number).bitwise_left_shift(number).sub_(1).to(at::kFloat);
}

ChunkEncoder::ChunkEncoder(const at::Tensor& like, const Range& range, const Format& format)
    : top_(static_cast<float>((1 << format.bits) - 1)),
      noisy_(format.noise.is_drawn()),
      counter_(counter_of(format.noise.key())) {
  LOWTIDE_CHECK(format.fits() && range.min.numel() == 1 && like.device().is_cpu(),
                "chunks are encoded as bytes with one range, on the CPU");
  min_ = range.min.data_ptr<float>()[0];
  scale_ = scale_of(range.range.data_ptr<float>()[0], top_);
  codes_ = {at::empty_like(like, like.options().dtype(at::kByte)), one_number(scale_), range.min,
            format.bits};
  code_ = codes_.code.data_ptr<std::uint8_t>();
}

void ChunkEncoder::encode(const float* x, std::int64_t first, std::int64_t n) const {
  ChunkArguments arguments;
  arguments.x = x;
  arguments.code = code_ + first;
  arguments.first = first;
  arguments.n = n;
  arguments.min = min_;
  arguments.scale = scale_;
  arguments.top = top_;
  arguments.counter = noisy_ ? &counter_ : nullptr;
  encode_chunk(arguments);
}

void track(const std::vector<RangeUpdate>& updates) {
  if (updates.empty()) return;
  std::vector<TrackedRange> ranges;
  for (const RangeUpdate& update : updates)
    ranges.push_back({update.min.data_ptr<float>(), update.range.data_ptr<float>(),
                      update.now.min.data_ptr<float>(), update.now.range.data_ptr<float>()});
  const Target target = target_of(updates[0].min);
  target.kernels.track(ranges.data(), static_cast<int>(ranges.size()), target.stream);
}

at::Tensor decode(const Quantized& q) {
  if (q.bits == 0) return q.code;
  const Rows rows = rows_of(q.code, q.scale.numel());
  at::Tensor value = at::empty_like(q.code, q.code.options().dtype(at::kFloat), contiguous_format(q.code));
  DecodeArguments arguments;
  arguments.code = q.code.data_ptr();
  arguments.scale = q.scale.data_ptr<float>();
  arguments.offset = q.offset.data_ptr<float>();
  arguments.value = value.data_ptr<float>();
  arguments.rows = rows.count;
  arguments.length = rows.length;
  arguments.bits = q.bits;
  const Target target = target_of(q.code);
  target.kernels.decode(arguments, target.stream);
  return value;
}

}  // namespace lowtide
