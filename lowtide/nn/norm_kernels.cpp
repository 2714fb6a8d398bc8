#include "lowtide/nn/norm_kernels.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "lowtide/base/error.h"
#include "lowtide/base/lanes.h"
#include "lowtide/base/simd.h"

namespace lowtide::cpu {
namespace {

// Memory is read as one long row of vectors of sixteen. Channels come round again every `period` elements, a common
// multiple of their number and sixteen: a table of that length holds a channel's constant, or sum, for every lane. At
// least four vectors, so that a sum is not wanted again before it is stored.
// Work is cut into chunks of about 64 KiB, which a second-level cache holds for a second look, and of whole blocks of
// eight periods, whose ReLU signs share a row of bytes.
constexpr std::int64_t kChunkElements = 16384;
constexpr int kSignsAByte = 8;

struct Layout {
  std::int64_t elements, channels, period, chunk, chunks;

  explicit Layout(const at::Tensor& x)
      : elements(x.numel()), channels(x.size(1)), period(std::lcm(channels, std::int64_t{4 * kSimdLanes})) {
    LOWTIDE_CHECK(x.dim() == 4 && x.is_contiguous(at::MemoryFormat::ChannelsLast) && elements > 0,
                  "these kernels read channels-last tensors");
    const std::int64_t block = kSignsAByte * period;
    chunk = std::max<std::int64_t>(1, kChunkElements / block) * block;
    chunks = (elements + chunk - 1) / chunk;
  }

  std::int64_t begin(std::int64_t i) const { return i * chunk; }
  std::int64_t length(std::int64_t i) const { return std::min(chunk, elements - i * chunk); }
  std::int64_t sign_bytes() const {
    return (elements + kSignsAByte * period - 1) / (kSignsAByte * period) * period;
  }

  // A channel's constants for every lane of a period.
  std::vector<float> spread(const std::vector<float>& by_channel) const {
    std::vector<float> lanes(static_cast<std::size_t>(period));
    for (std::size_t i = 0; i < lanes.size(); ++i) lanes[i] = by_channel[i % by_channel.size()];
    return lanes;
  }
};

template <typename Chunk>
void for_each_chunk(const Layout& layout, const Chunk& chunk) {
  constexpr std::int64_t kChunksAThread = 2;  // some 10 µs of work: fewer are not worth waking a thread
  at::parallel_for(0, layout.chunks, kChunksAThread, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) chunk(i, layout.begin(i), layout.length(i));
  });
}

inline std::int64_t next_vector(std::int64_t lane, std::int64_t period) {
  return lane + kSimdLanes == period ? 0 : lane + kSimdLanes;
}

// One chunk's partial results, a number for each lane.
struct Partial {
  std::vector<float> first, second, low, high;
  Partial(const Layout& layout, bool extremes) {
    const auto size = static_cast<std::size_t>(layout.chunks * layout.period);
    first.resize(size);
    second.resize(size);
    if (extremes) {
      low.resize(size);
      high.resize(size);
    }
  }
};

// Mean as a distance from the lane's first number, and squared distances from the mean: numbers that lie close together
// far from 0 keep their digits so.
LOWTIDE_SIMD void lane_moments(const float* x, std::int64_t n, std::int64_t period, float* mean,
                               float* squares, float* low, float* high) {
  std::fill_n(mean, period, 0.0f);
  std::fill_n(squares, period, 0.0f);
  std::copy_n(x, std::min(n, period), low);
  std::copy_n(x, std::min(n, period), high);
  std::int64_t i = 0, lane = 0;
  for (; i + kSimdLanes <= n; i += kSimdLanes, lane = next_vector(lane, period)) {
    const Floats v = LOWTIDE_LOAD(Floats, x + i);
    const Floats least = LOWTIDE_LOAD(Floats, low + lane), most = LOWTIDE_LOAD(Floats, high + lane);
    LOWTIDE_STORE(mean + lane, LOWTIDE_LOAD(Floats, mean + lane) + (v - LOWTIDE_LOAD(Floats, x + lane)));
    LOWTIDE_STORE(low + lane, v < least ? v : least);
    LOWTIDE_STORE(high + lane, v > most ? v : most);
  }
  for (; i < n; ++i, ++lane) {
    mean[lane] += x[i] - x[lane];
    low[lane] = std::min(low[lane], x[i]);
    high[lane] = std::max(high[lane], x[i]);
  }
  for (lane = 0; lane < std::min(n, period); ++lane) {
    mean[lane] /= static_cast<float>((n - lane + period - 1) / period);
  }
  for (i = 0, lane = 0; i + kSimdLanes <= n; i += kSimdLanes, lane = next_vector(lane, period)) {
    const Floats distance =
        LOWTIDE_LOAD(Floats, x + i) - LOWTIDE_LOAD(Floats, x + lane) - LOWTIDE_LOAD(Floats, mean + lane);
    LOWTIDE_STORE(squares + lane, LOWTIDE_LOAD(Floats, squares + lane) + distance * distance);
  }
  for (; i < n; ++i, ++lane) {
    const float distance = x[i] - x[lane] - mean[lane];
    squares[lane] += distance * distance;
  }
}

struct MapTables {
  std::vector<float> mean, factor, bias;
  MapTables(const Layout& layout, const ChannelMap& map)
      : mean(layout.spread(map.mean)), factor(layout.spread(map.factor)), bias(layout.spread(map.bias)) {}
};

struct MapPointers {
  const float* mean;
  const float* factor;
  const float* bias;
  float floor;  // of the result: 0 with ReLU, else minus infinity
};

MapPointers pointers(const MapTables& tables, bool relu) {
  return {tables.mean.data(), tables.factor.data(), tables.bias.data(),
          relu ? 0.0f : -std::numeric_limits<float>::infinity()};
}

#define LOWTIDE_MAPPED(x, i, map, lane)                                            \
  ((LOWTIDE_LOAD(Floats, (x) + (i)) - LOWTIDE_LOAD(Floats, (map).mean + (lane))) * \
       LOWTIDE_LOAD(Floats, (map).factor + (lane)) +                               \
   LOWTIDE_LOAD(Floats, (map).bias + (lane)))

inline float mapped(const float* x, std::int64_t i, const MapPointers& map, std::int64_t lane) {
  return (x[i] - map.mean[lane]) * map.factor[lane] + map.bias[lane];
}

LOWTIDE_SIMD void encode_span(const float* x, std::int64_t n, std::int64_t period, const MapPointers& map,
                              float min, float scale, float top, std::uint8_t* code) {
  constexpr float kMagic = 0x1.8p23f;  // see round_small in quantizer_cpu.cpp
  const Floats floor = Floats{} + map.floor, zero{}, most = Floats{} + top;
  std::int64_t i = 0, lane = 0;
  for (; i + kSimdLanes <= n; i += kSimdLanes, lane = next_vector(lane, period)) {
    Floats z = LOWTIDE_MAPPED(x, i, map, lane);
    z = z < floor ? floor : z;
    Floats v = (z - min) / scale;
    v = v < zero ? zero : v;
    v = (v > most ? most : v) + kMagic;
    // The integer stands in the low bits.
    LOWTIDE_STORE(code + i, __builtin_convertvector(__builtin_bit_cast(Words, v) & 0xffu, Bytes));
  }
  for (; i < n; ++i, ++lane) {
    float z = mapped(x, i, map, lane);
    z = z < map.floor ? map.floor : z;
    float v = (z - min) / scale;
    v = v < 0.0f ? 0.0f : v;
    v = (v > top ? top : v) + kMagic;
    code[i] = static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(v));
  }
}

struct Extremes {
  float low = std::numeric_limits<float>::infinity();
  float high = -std::numeric_limits<float>::infinity();
  float poison = 0;  // NaN once anything was not finite
};

// Where the signs of a period stand: eight periods share a row of bytes, a bit each.
struct SignPosition {
  std::int64_t row = 0;
  std::int32_t bit = 1;

  // To be told of each new lane.
  void advance(std::int64_t lane, std::int64_t period) {
    if (lane != 0) return;
    bit <<= 1;
    if (bit == 1 << kSignsAByte) {
      bit = 1;
      row += period;
    }
  }
};

struct AddSpan {
  const float* x;
  const float* residual;  // or nothing
  float* value;
  std::uint8_t* positive;  // or nothing: [block of eight periods][period]
};

LOWTIDE_SIMD void add_span(const AddSpan& span, std::int64_t n, std::int64_t period, const MapPointers& map,
                           Extremes& extremes) {
  Floats low = Floats{} + extremes.low, high = Floats{} + extremes.high, poison{};
  const Floats floor = Floats{} + map.floor, zero{};
  if (span.positive)
    std::fill_n(span.positive, (n + kSignsAByte * period - 1) / (kSignsAByte * period) * period, 0);
  std::int64_t i = 0, lane = 0;
  SignPosition at;
  for (; i + kSimdLanes <= n; i += kSimdLanes, lane = next_vector(lane, period), at.advance(lane, period)) {
    Floats z = LOWTIDE_MAPPED(span.x, i, map, lane);
    if (span.residual) z += LOWTIDE_LOAD(Floats, span.residual + i);
    if (span.positive) {
      std::uint8_t* signs = span.positive + at.row + lane;
      LOWTIDE_STORE(signs, LOWTIDE_LOAD(Bytes, signs) | __builtin_convertvector((z > zero) & at.bit, Bytes));
    }
    z = z < floor ? floor : z;
    low = z < low ? z : low;
    high = z > high ? z : high;
    poison += z * 0.0f;
    LOWTIDE_STORE(span.value + i, z);
  }
  for (; i < n; ++i, ++lane) {
    float z = mapped(span.x, i, map, lane);
    if (span.residual) z += span.residual[i];
    if (span.positive && z > 0) span.positive[at.row + lane] |= static_cast<std::uint8_t>(at.bit);
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

Range range_of(const std::vector<Extremes>& parts, const at::TensorOptions& options) {
  Extremes all;
  for (const Extremes& part : parts) {
    all.low = std::min(all.low, part.low);
    all.high = std::max(all.high, part.high);
    all.poison += part.poison;
  }
  return {at::full({1}, all.low + all.poison, options),
          at::full({1}, all.high - all.low + all.poison, options)};
}

// How ReLU's sign is known on the way back.
enum class Signs { kNone, kStored, kFromInput };

struct BackSpan {
  const float* gradient;
  const float* x;
  const std::uint8_t* positive;
  float* masked;  // out, where signs are stored: the gradient that ReLU let pass
};

inline float passed(float gradient, Signs signs, const BackSpan& span, std::int64_t i, std::int64_t lane,
                    const SignPosition& at, const MapPointers& map) {
  if (signs == Signs::kStored) return (span.positive[at.row + lane] & at.bit) != 0 ? gradient : 0.0f;
  if (signs == Signs::kFromInput) return mapped(span.x, i, map, lane) > 0 ? gradient : 0.0f;
  return gradient;
}

// Σ g and Σ g (x - mean) of each lane, g being the gradient that ReLU let pass.
template <Signs kSigns>
LOWTIDE_SIMD void gradient_sums(const BackSpan& span, std::int64_t n, std::int64_t period,
                                const MapPointers& map, float* sum, float* product) {
  std::fill_n(sum, period, 0.0f);
  std::fill_n(product, period, 0.0f);
  std::int64_t i = 0, lane = 0;
  SignPosition at;
  for (; i + kSimdLanes <= n; i += kSimdLanes, lane = next_vector(lane, period), at.advance(lane, period)) {
    Floats g = LOWTIDE_LOAD(Floats, span.gradient + i);
    if constexpr (kSigns == Signs::kStored) {
      const Ints signs = __builtin_convertvector(LOWTIDE_LOAD(Bytes, span.positive + at.row + lane), Ints);
      g = (signs & at.bit) != 0 ? g : Floats{};
      LOWTIDE_STORE(span.masked + i, g);
    } else if constexpr (kSigns == Signs::kFromInput) {
      g = LOWTIDE_MAPPED(span.x, i, map, lane) > Floats{} ? g : Floats{};
    }
    const Floats distance = LOWTIDE_LOAD(Floats, span.x + i) - LOWTIDE_LOAD(Floats, map.mean + lane);
    LOWTIDE_STORE(sum + lane, LOWTIDE_LOAD(Floats, sum + lane) + g);
    LOWTIDE_STORE(product + lane, LOWTIDE_LOAD(Floats, product + lane) + g * distance);
  }
  for (; i < n; ++i, ++lane) {
    const float g = passed(span.gradient[i], kSigns, span, i, lane, at, map);
    if constexpr (kSigns == Signs::kStored) span.masked[i] = g;
    sum[lane] += g;
    product[lane] += g * (span.x[i] - map.mean[lane]);
  }
}

// dx = factor (g - shift - (x - mean) slope)
template <Signs kSigns>
LOWTIDE_SIMD void input_gradient(const BackSpan& span, std::int64_t n, std::int64_t period,
                                 const MapPointers& map, const float* shift, const float* slope, float* dx,
                                 Extremes& extremes) {
  Floats low = Floats{} + extremes.low, high = Floats{} + extremes.high, poison{};
  std::int64_t i = 0, lane = 0;
  for (; i + kSimdLanes <= n; i += kSimdLanes, lane = next_vector(lane, period)) {
    Floats g = LOWTIDE_LOAD(Floats, span.gradient + i);
    if constexpr (kSigns == Signs::kFromInput)
      g = LOWTIDE_MAPPED(span.x, i, map, lane) > Floats{} ? g : Floats{};
    const Floats distance = LOWTIDE_LOAD(Floats, span.x + i) - LOWTIDE_LOAD(Floats, map.mean + lane);
    const Floats d = LOWTIDE_LOAD(Floats, map.factor + lane) *
                     (g - LOWTIDE_LOAD(Floats, shift + lane) - distance * LOWTIDE_LOAD(Floats, slope + lane));
    low = d < low ? d : low;
    high = d > high ? d : high;
    poison += d * 0.0f;
    LOWTIDE_STORE(dx + i, d);
  }
  for (; i < n; ++i, ++lane) {
    const float g = passed(span.gradient[i], kSigns, span, i, lane, {}, map);
    const float d = map.factor[lane] * (g - shift[lane] - (span.x[i] - map.mean[lane]) * slope[lane]);
    extremes.low = std::min(extremes.low, d);
    extremes.high = std::max(extremes.high, d);
    extremes.poison += d * 0.0f;
    dx[i] = d;
  }
  for (int k = 0; k < kSimdLanes; ++k) {
    extremes.low = std::min(extremes.low, low[k]);
    extremes.high = std::max(extremes.high, high[k]);
    extremes.poison += poison[k];
  }
}

void join_channel(const Layout& layout, const float* data, const Partial& part, std::int64_t channel,
                  ChannelStatistics& result) {
  // Chan, Golub and LeVeque 1979, equations 2.1: moments of a union from those of its parts.
  double count = 0, mean = 0, squares = 0;
  float low = std::numeric_limits<float>::infinity(), high = -low;
  for (std::int64_t i = 0; i < layout.chunks; ++i) {
    for (std::int64_t lane = channel; lane < layout.period; lane += layout.channels) {
      const std::int64_t more = (layout.length(i) - lane + layout.period - 1) / layout.period;
      if (more <= 0) continue;
      const auto at = static_cast<std::size_t>(i * layout.period + lane);
      const auto n = static_cast<double>(more);
      const double distance = static_cast<double>(data[layout.begin(i) + lane]) + part.first[at] - mean;
      squares += part.second[at] + distance * distance * count * n / (count + n);
      mean += distance * n / (count + n);
      count += n;
      low = std::min(low, part.low[at]);
      high = std::max(high, part.high[at]);
    }
  }
  const auto c = static_cast<std::size_t>(channel);
  const auto poison = static_cast<float>(mean * 0.0);  // comparisons pass over a NaN, sums do not
  result.mean[c] = static_cast<float>(mean);
  result.variance[c] = static_cast<float>(squares / count);
  result.low[c] = low + poison;
  result.high[c] = high + poison;
}

at::Tensor floats_of(const std::vector<float>& values, const at::TensorOptions& options) {
  at::Tensor tensor = at::empty({static_cast<std::int64_t>(values.size())}, options);
  std::copy(values.begin(), values.end(), tensor.data_ptr<float>());
  return tensor;
}

}  // namespace

ChannelStatistics channel_statistics(const at::Tensor& x) {
  const Layout layout(x);
  const float* data = x.data_ptr<float>();
  Partial part(layout, /*extremes=*/true);
  for_each_chunk(layout, [&](std::int64_t i, std::int64_t begin, std::int64_t n) {
    const std::int64_t at = i * layout.period;
    lane_moments(data + begin, n, layout.period, part.first.data() + at, part.second.data() + at,
                 part.low.data() + at, part.high.data() + at);
  });
  const auto channels = static_cast<std::size_t>(layout.channels);
  ChannelStatistics result{std::vector<float>(channels), std::vector<float>(channels),
                           std::vector<float>(channels), std::vector<float>(channels)};
  const std::int64_t parts_a_channel = layout.chunks * (layout.period / layout.channels);
  const std::int64_t grain = std::max<std::int64_t>(1, 5'000 / parts_a_channel);
  at::parallel_for(0, layout.channels, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t c = begin; c < end; ++c) join_channel(layout, data, part, c, result);
  });
  return result;
}

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
  return range_of({all}, at::TensorOptions(at::kFloat));
}

Quantized encode_mapped(const at::Tensor& x, const ChannelMap& map, const Range& range, int bits) {
  const Layout layout(x);
  const MapTables tables(layout, map);
  const MapPointers at = pointers(tables, map.relu);
  const auto top = static_cast<float>((1 << bits) - 1);
  const float min = range.min.data_ptr<float>()[0];
  float scale = range.range.data_ptr<float>()[0] / top;
  scale = scale < 1e-8f ? 1e-8f : scale;  // a NaN stays one
  Quantized result{at::empty_like(x, x.options().dtype(at::kByte)), at::full({1}, scale, range.min.options()),
                   range.min, bits};
  for_each_chunk(layout, [&](std::int64_t, std::int64_t begin, std::int64_t n) {
    encode_span(x.data_ptr<float>() + begin, n, layout.period, at, min, scale, top,
                result.code.data_ptr<std::uint8_t>() + begin);
  });
  return result;
}

MappedSum map_and_add(const at::Tensor& x, const ChannelMap& map, const at::Tensor& residual) {
  const Layout layout(x);
  const MapTables tables(layout, map);
  const MapPointers at = pointers(tables, map.relu);
  MappedSum result;
  result.value = at::empty_like(x);
  const bool keeps_signs = residual.defined() && map.relu;
  if (keeps_signs) result.positive = at::empty({layout.sign_bytes()}, at::TensorOptions(at::kByte));
  std::vector<Extremes> parts(static_cast<std::size_t>(layout.chunks));
  for_each_chunk(layout, [&](std::int64_t i, std::int64_t begin, std::int64_t n) {
    add_span({x.data_ptr<float>() + begin, residual.defined() ? residual.data_ptr<float>() + begin : nullptr,
              result.value.data_ptr<float>() + begin,
              keeps_signs ? result.positive.data_ptr<std::uint8_t>() + begin / kSignsAByte : nullptr},
             n, layout.period, at, parts[static_cast<std::size_t>(i)]);
  });
  result.range = range_of(parts, at::TensorOptions(at::kFloat));
  return result;
}

MapGradients map_backward(const at::Tensor& gradient, const at::Tensor& x, const ChannelMap& map,
                          const std::vector<float>& inverse_deviation, const at::Tensor& positive,
                          bool wants_residual) {
  const Layout layout(x);
  const MapTables tables(layout, map);
  const MapPointers at = pointers(tables, map.relu);
  const bool stored = positive.defined(), from_input = map.relu && !stored;
  MapGradients result;
  if (stored) {
    result.residual = at::empty_like(x);
  } else if (wants_residual) {
    result.residual = gradient;  // nothing stood between
  }
  const auto span_at = [&](std::int64_t begin) {
    return BackSpan{gradient.data_ptr<float>() + begin, x.data_ptr<float>() + begin,
                    stored ? positive.data_ptr<std::uint8_t>() + begin / kSignsAByte : nullptr,
                    stored ? result.residual.data_ptr<float>() + begin : nullptr};
  };
  Partial part(layout, /*extremes=*/false);
  for_each_chunk(layout, [&](std::int64_t i, std::int64_t begin, std::int64_t n) {
    const auto sums = stored       ? gradient_sums<Signs::kStored>
                      : from_input ? gradient_sums<Signs::kFromInput>
                                   : gradient_sums<Signs::kNone>;
    sums(span_at(begin), n, layout.period, at, part.first.data() + i * layout.period,
         part.second.data() + i * layout.period);
  });
  const auto channels = static_cast<std::size_t>(layout.channels);
  std::vector<float> weight(channels), bias(channels), shift(channels), slope(channels);
  for (std::size_t c = 0; c < channels; ++c) {
    double sum = 0, product = 0;
    for (std::size_t lane = c; lane < part.first.size(); lane += channels) {
      sum += part.first[lane];
      product += part.second[lane];
    }
    // With x̂ = (x - mean) / deviation: dγ = Σ g x̂, dβ = Σ g, dx = γ / deviation (g - dβ / n - x̂ dγ / n).
    const double inverse = inverse_deviation[c], n = static_cast<double>(layout.elements / layout.channels);
    weight[c] = static_cast<float>(product * inverse);
    bias[c] = static_cast<float>(sum);
    shift[c] = static_cast<float>(sum / n);
    slope[c] = static_cast<float>(product * inverse * inverse / n);
  }
  const std::vector<float> shifts = layout.spread(shift), slopes = layout.spread(slope);
  result.input = at::empty_like(x);
  std::vector<Extremes> extremes(static_cast<std::size_t>(layout.chunks));
  for_each_chunk(layout, [&](std::int64_t i, std::int64_t begin, std::int64_t n) {
    BackSpan span = span_at(begin);
    if (stored) span.gradient = span.masked;
    const auto compute = from_input ? input_gradient<Signs::kFromInput> : input_gradient<Signs::kNone>;
    compute(span, n, layout.period, at, shifts.data(), slopes.data(), result.input.data_ptr<float>() + begin,
            extremes[static_cast<std::size_t>(i)]);
  });
  const at::TensorOptions options(at::kFloat);
  result.input_range = range_of(extremes, options);
  result.weight = floats_of(weight, options);
  result.bias = floats_of(bias, options);
  return result;
}

}  // namespace lowtide::cpu
