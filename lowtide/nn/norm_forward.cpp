#include <bit>
#include <cmath>

#include "lowtide/base/simd.h"
#include "lowtide/nn/norm_layout.h"

namespace lowtide::cpu {
namespace {

constexpr float kMagic = 0x1.8p23f;  // see round_small in quantizer_cpu.cpp

LOWTIDE_SIMD void encode_span(const float* x, std::int64_t n, std::int64_t period, const MapPointers& map,
                              float min, float scale, float top, std::uint8_t* code) {
  const std::int64_t whole = n / kStrip * kStrip;
  const Floats floor = Floats{} + map.floor, zero{}, most = Floats{} + top;
  for (std::int64_t strip = 0; strip < std::min(period, whole); strip += kStrip) {
    LOWTIDE_LOAD_MAP(map, strip)
    for (std::int64_t i = strip; i < whole; i += period) {
      for (int k = 0; k < kStripVectors; ++k) {
        Floats z = (LOWTIDE_LOAD(Floats, x + i + k * kSimdLanes) - mean[k]) * factor[k] + bias[k];
        z = z < floor ? floor : z;
        Floats v = (z - min) / scale;
        v = v < zero ? zero : v;
        v = (v > most ? most : v) + kMagic;
        // The integer stands in the low bits.
        LOWTIDE_STORE(code + i + k * kSimdLanes,
                      __builtin_convertvector(__builtin_bit_cast(Words, v) & 0xffu, Bytes));
      }
    }
  }
  for (std::int64_t i = whole, lane = whole % period; i < n; ++i, ++lane) {
    float z = mapped(x[i], map, lane);
    z = z < map.floor ? map.floor : z;
    float v = (z - min) / scale;
    v = v < 0.0f ? 0.0f : v;
    v = (v > top ? top : v) + kMagic;
    code[i] = static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(v));
  }
}

struct AddSpan {
  const float* x;
  const float* residual;  // or nothing
  float* value;
  std::uint8_t* positive;  // or nothing: [block of eight periods][period]
};

template <bool kAdds, bool kKeepsSigns>
LOWTIDE_SIMD void add_span(const AddSpan& span, std::int64_t n, std::int64_t period, const MapPointers& map,
                           Extremes& extremes) {
  const std::int64_t whole = n / kStrip * kStrip;
  Floats low = Floats{} + extremes.low, high = Floats{} + extremes.high, poison{};
  const Floats floor = Floats{} + map.floor, zero{};
  for (std::int64_t strip = 0; strip < std::min(period, whole); strip += kStrip) {
    LOWTIDE_LOAD_MAP(map, strip)
    for (std::int64_t i = strip, row = strip; i < whole; row += period) {
      Ints passed[kStripVectors]{};
      for (std::int32_t bit = 1; bit < 1 << kSignsAByte && i < whole; bit <<= 1, i += period) {
        for (int k = 0; k < kStripVectors; ++k) {
          Floats z = (LOWTIDE_LOAD(Floats, span.x + i + k * kSimdLanes) - mean[k]) * factor[k] + bias[k];
          if constexpr (kAdds) z += LOWTIDE_LOAD(Floats, span.residual + i + k * kSimdLanes);
          if constexpr (kKeepsSigns) passed[k] |= (z > zero) & bit;
          z = z < floor ? floor : z;
          low = z < low ? z : low;
          high = z > high ? z : high;
          poison += z * 0.0f;
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
  const std::int64_t last = whole / period, last_bit = 1 << last % kSignsAByte;
  for (std::int64_t i = whole, lane = whole % period; i < n; ++i, ++lane) {
    float z = mapped(span.x[i], map, lane);
    if constexpr (kAdds) z += span.residual[i];
    if constexpr (kKeepsSigns) {
      std::uint8_t& signs = span.positive[last / kSignsAByte * period + lane];
      if (last_bit == 1) signs = 0;
      if (z > 0) signs |= static_cast<std::uint8_t>(last_bit);
    }
    z = z < map.floor ? map.floor : z;
    extremes.low = std::min(extremes.low, z);
    extremes.high = std::max(extremes.high, z);
    extremes.poison += z * 0.0f;
    span.value[i] = z;
  }
  for (int k = 0; k < kSimdLanes; ++k) {
    extremes.low = std::min(extremes.low, low[k]);
    extremes.high = std::max(extremes.high, high[k]);
    extremes.poison += poison[k];
  }
}

}  // namespace

Range ChannelMap::range(const ChannelStatistics& x) const {
  Extremes all;
  for (std::size_t c = 0; c < mean.size(); ++c) {
    for (const float end : {x.low[c], x.high[c]}) {
      float z = (end - mean[c]) * factor[c] + bias[c];
      all.poison += z * 0.0f;
      z = relu && z < 0.0f ? 0.0f : z;
      all.low = std::min(all.low, z);
      all.high = std::max(all.high, z);
    }
  }
  return range_of({all});
}

Quantized encode_mapped(const at::Tensor& x, const ChannelMap& map, const Range& range, int bits) {
  const Layout layout(x);
  const MapTables tables(layout, map);
  const auto top = static_cast<float>((1 << bits) - 1);
  const float min = range.min.data_ptr<float>()[0];
  const float scale = scale_of(range.range.data_ptr<float>()[0], top);
  Quantized result{at::empty_like(x, x.options().dtype(at::kByte)), one_number(scale), range.min, bits};
  for_each_chunk(layout, [&](std::int64_t, std::int64_t begin, std::int64_t n) {
    encode_span(x.data_ptr<float>() + begin, n, layout.period, tables, min, scale, top,
                result.code.data_ptr<std::uint8_t>() + begin);
  });
  return result;
}

MappedSum map_and_add(const at::Tensor& x, const ChannelMap& map, const at::Tensor& residual) {
  const Layout layout(x);
  const MapTables tables(layout, map);
  const bool adds = residual.defined(), keeps_signs = adds && map.relu;
  MappedSum result;
  result.value = at::empty_like(x);
  if (keeps_signs) result.positive = at::empty({layout.sign_bytes()}, at::TensorOptions(at::kByte));
  std::vector<Extremes> parts(static_cast<std::size_t>(layout.chunks));
  const auto compute = keeps_signs ? add_span<true, true>
                       : adds      ? add_span<true, false>
                                   : add_span<false, false>;
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
