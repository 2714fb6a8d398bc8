#include "lowtide/base/scratch.h"
#include "lowtide/base/simd.h"
#include "lowtide/engine/cpu/norm_layout.h"

namespace lowtide::cpu {
namespace {

struct AddSpan {
  const float* x = nullptr;
  const float* residual = nullptr;
  float* value = nullptr;
  std::uint8_t* positive = nullptr;  // [block of eight periods][period]
};

template <bool kAdds, bool kKeepsSigns, bool kMeasures>
LOWTIDE_SIMD void add_span(const AddSpan& span, std::int64_t n, std::int64_t period, const MapPointers& map,
                           Extremes& extremes) {
  const std::int64_t whole = n / kStrip * kStrip;
  Floats low = Floats{} + extremes.min, high = Floats{} + extremes.max, poison{};
  const Floats floor = Floats{} + map.floor, zero{};
  for (std::int64_t strip = 0; strip < std::min(period, whole); strip += kStrip) {
    const MapStrip m(map, strip);
    for (std::int64_t i = strip, row = strip; i < whole; row += period) {
      Ints passed[kStripVectors]{};
      for (std::int32_t bit = 1; bit < 1 << kSignsPerByte && i < whole; bit <<= 1, i += period) {
        for (int k = 0; k < kStripVectors; ++k) {
          Floats z =
              (LOWTIDE_LOAD(Floats, span.x + i + k * kSimdLanes) - m.mean[k]) * m.factor[k] + m.bias[k];
          if constexpr (kAdds) z += LOWTIDE_LOAD(Floats, span.residual + i + k * kSimdLanes);
          if constexpr (kKeepsSigns) passed[k] |= (z > zero) & bit;
          z = z < floor ? floor : z;
          if constexpr (kMeasures) {
            low = z < low ? z : low;
            high = z > high ? z : high;
            poison += z * 0.0f;
          }
          LOWTIDE_STORE(span.value + i + k * kSimdLanes, z);
        }
      }
      if constexpr (kKeepsSigns) {
        for (int k = 0; k < kStripVectors; ++k) {
          LOWTIDE_STORE(span.positive + row + k * kSimdLanes, __builtin_convertvector(passed[k], Bytes));
        }
      }
    }
  }
  const std::int64_t last = whole / period, last_bit = 1 << last % kSignsPerByte;
  for (std::int64_t i = whole, lane = whole % period; i < n; ++i, ++lane) {
    float z = mapped(span.x[i], map, lane);
    if constexpr (kAdds) z += span.residual[i];
    if constexpr (kKeepsSigns) {
      std::uint8_t& signs = span.positive[last / kSignsPerByte * period + lane];
      if (last_bit == 1) signs = 0;
      if (z > 0) signs |= static_cast<std::uint8_t>(last_bit);
    }
    z = z < map.floor ? map.floor : z;
    extremes.include(z);
    span.value[i] = z;
  }
  for (int k = 0; k < kSimdLanes; ++k) {
    extremes.join({low[k], high[k], poison[k]});
  }
}

}  // namespace

Range ChannelMap::range(const ChannelStatistics& x) const {
  Extremes all = Extremes::of_none();
  for (std::size_t c = 0; c < mean.size(); ++c) {
    for (const float end : {x.low[c], x.high[c]}) {
      const float z = (end - mean[c]) * factor[c] + bias[c];
      all.poison += z * 0.0f;  // ReLU hides minus infinity
      all.include(relu && z < 0.0f ? 0.0f : z);
    }
  }
  return range_of({all});
}

Quantized encode_mapped(const at::Tensor& x, const ChannelMap& map, const Range& range, int bits) {
  const Layout layout(x);
  const MapTables tables(layout, map);
  const ChunkEncoder encoder(x, range, {bits});
  for_each_chunk(layout, [&](std::int64_t, std::int64_t begin, std::int64_t n) {
    thread_local Scratch<float> memory;
    float* z = memory.at_least(layout.first_level());
    Extremes not_measured = Extremes::of_none();
    for (std::int64_t from = begin; from < begin + n; from += layout.first_level()) {
      const std::int64_t count = std::min(layout.first_level(), begin + n - from);
      const AddSpan span{.x = x.data_ptr<float>() + from, .value = z};
      add_span<false, false, false>(span, count, layout.period, tables, not_measured);
      encoder.encode(z, from, count);
    }
  });
  return encoder.codes();
}

MappedSum map_and_add(const at::Tensor& x, const ChannelMap& map, const at::Tensor& residual) {
  const Layout layout(x);
  const MapTables tables(layout, map);
  const bool adds = residual.defined(), keeps_signs = adds && map.relu;
  MappedSum result;
  result.value = at::empty_like(x);
  if (keeps_signs) result.positive = at::empty({layout.sign_bytes()}, at::TensorOptions(at::kByte));
  KeptVector<Extremes> parts(static_cast<std::size_t>(layout.chunks), Extremes::of_none());
  const auto compute = keeps_signs ? add_span<true, true, true>
                       : adds      ? add_span<true, false, true>
                                   : add_span<false, false, true>;
  for_each_chunk(layout, [&](std::int64_t i, std::int64_t begin, std::int64_t n) {
    compute({x.data_ptr<float>() + begin, adds ? residual.data_ptr<float>() + begin : nullptr,
             result.value.data_ptr<float>() + begin,
             keeps_signs ? result.positive.data_ptr<std::uint8_t>() + layout.signs_begin(i) : nullptr},
            n, layout.period, tables, parts[static_cast<std::size_t>(i)]);
  });
  result.range = range_of(parts);
  return result;
}

}  // namespace lowtide::cpu
