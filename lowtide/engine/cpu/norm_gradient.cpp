#include <cmath>

#include "lowtide/base/fetch.h"
#include "lowtide/base/scratch.h"
#include "lowtide/base/simd.h"
#include "lowtide/engine/cpu/norm_layout.h"

namespace lowtide::cpu {
namespace {

// How ReLU's sign is known on the way back.
enum class Signs { kNone, kStored, kFromInput };

struct BackSpan {
  const float* gradient;
  const float* x;
  const std::uint8_t* positive;
  float* masked;  // out, where signs are stored: the gradient that ReLU let pass; may be the gradient itself
};

// Of each lane, g being the gradient that ReLU let pass.
struct LaneSums {
  float* sum;      // Σ g
  float* product;  // Σ g (x - mean)
  float* low;      // the least g
  float* high;     // the greatest g
};

template <Signs kSigns>
LOWTIDE_SIMD void gradient_sums(const BackSpan& span, std::int64_t n, std::int64_t period,
                                const MapPointers& map, const LaneSums& lanes) {
  const std::int64_t whole = n / kStrip * kStrip;
  std::fill_n(lanes.sum, period, 0.0f);
  std::fill_n(lanes.product, period, 0.0f);
  std::fill_n(lanes.low, period, Extremes::of_none().min);
  std::fill_n(lanes.high, period, Extremes::of_none().max);
  for (std::int64_t strip = 0; strip < std::min(period, whole); strip += kStrip) {
    const MapStrip m(map, strip);
    Floats sums[kStripVectors]{}, products[kStripVectors]{}, low[kStripVectors], high[kStripVectors];
    for (int k = 0; k < kStripVectors; ++k) {
      low[k] = Floats{} + Extremes::of_none().min;
      high[k] = Floats{} + Extremes::of_none().max;
    }
    for (std::int64_t i = strip, row = strip; i < whole; row += period) {
      Ints signs[kStripVectors]{};
      if constexpr (kSigns == Signs::kStored) {
        for (int k = 0; k < kStripVectors; ++k) {
          signs[k] = LOWTIDE_LOAD_BYTES(span.positive + row + k * kSimdLanes);
        }
      }
      for (std::int32_t bit = 1; bit < 1 << kSignsPerByte && i < whole; bit <<= 1, i += period) {
        for (int k = 0; k < kStripVectors; ++k) {
          Floats g = LOWTIDE_LOAD(Floats, span.gradient + i + k * kSimdLanes);
          const Floats distance = LOWTIDE_LOAD(Floats, span.x + i + k * kSimdLanes) - m.mean[k];
          if constexpr (kSigns == Signs::kStored) {
            g = (signs[k] & bit) != 0 ? g : Floats{};
            LOWTIDE_STORE(span.masked + i + k * kSimdLanes, g);
          } else if constexpr (kSigns == Signs::kFromInput) {
            g = distance * m.factor[k] + m.bias[k] > Floats{} ? g : Floats{};
          }
          sums[k] += g;
          products[k] += g * distance;
          low[k] = g < low[k] ? g : low[k];
          high[k] = g > high[k] ? g : high[k];
        }
      }
    }
    for (int k = 0; k < kStripVectors; ++k) {
      LOWTIDE_STORE(lanes.sum + strip + k * kSimdLanes, sums[k]);
      LOWTIDE_STORE(lanes.product + strip + k * kSimdLanes, products[k]);
      LOWTIDE_STORE(lanes.low + strip + k * kSimdLanes, low[k]);
      LOWTIDE_STORE(lanes.high + strip + k * kSimdLanes, high[k]);
    }
  }
  const std::int64_t last = whole / period;
  for (std::int64_t i = whole, lane = whole % period; i < n; ++i, ++lane) {
    float g = span.gradient[i];
    if constexpr (kSigns == Signs::kStored) {
      g = (span.positive[last / kSignsPerByte * period + lane] >> last % kSignsPerByte & 1) != 0 ? g : 0.0f;
      span.masked[i] = g;
    } else if constexpr (kSigns == Signs::kFromInput) {
      g = mapped(span.x[i], map, lane) > 0 ? g : 0.0f;
    }
    lanes.sum[lane] += g;
    lanes.product[lane] += g * (span.x[i] - map.mean[lane]);
    lanes.low[lane] = std::min(lanes.low[lane], g);
    lanes.high[lane] = std::max(lanes.high[lane], g);
  }
}

// dx = factor (g - gradient_mean - (x - mean) slope)
struct GradientTerms {
  const float* gradient;
  const float* x;
  const float* gradient_mean;
  const float* slope;
};

// What bounds a chunk's dx, a number for each lane of a period: the extremes of its g, and the constants of dx.
struct BoundTerms {
  const float *least, *most;   // of g
  const float* max_deviation;  // the greatest |x - mean|
  const float *gradient_mean, *slope, *factor;
};

// What no dx of a chunk can pass. Each operation of dx keeps order when it rounds, so the same operations on extremes bound
// what the others give, to the bit.
LOWTIDE_SIMD void bound_gradient(const BoundTerms& of, std::int64_t period, Extremes& bounds) {
  Floats low = Floats{} + bounds.min, high = Floats{} + bounds.max, poison{};
  for (std::int64_t i = 0; i < period; i += kSimdLanes) {
    const Floats steep = LOWTIDE_LOAD(Floats, of.slope + i), by = LOWTIDE_LOAD(Floats, of.gradient_mean + i);
    const Floats spread = LOWTIDE_LOAD(Floats, of.max_deviation + i) * (steep < Floats{} ? -steep : steep);
    const Floats scale = LOWTIDE_LOAD(Floats, of.factor + i);
    const Floats a = scale * (LOWTIDE_LOAD(Floats, of.least + i) - by - spread);
    const Floats b = scale * (LOWTIDE_LOAD(Floats, of.most + i) - by + spread);
    const Floats lower = a < b ? a : b, upper = a < b ? b : a;
    low = lower < low ? lower : low;
    high = upper > high ? upper : high;
    poison += (a + b) * 0.0f;
  }
  for (int k = 0; k < kSimdLanes; ++k) {
    bounds.join({low[k], high[k], poison[k]});
  }
}

template <bool kMasks, bool kWrites, bool kMeasures>
LOWTIDE_SIMD void input_gradient(const GradientTerms& of, std::int64_t n, std::int64_t period,
                                 const MapPointers& map, float* dx, Extremes& extremes) {
  const std::int64_t whole = n / kStrip * kStrip;
  Floats low = Floats{} + extremes.min, high = Floats{} + extremes.max, poison{};
  for (std::int64_t strip = 0; strip < std::min(period, whole); strip += kStrip) {
    const MapStrip m(map, strip);
    Floats gradient_mean[kStripVectors], slope[kStripVectors];
    for (int k = 0; k < kStripVectors; ++k) {
      gradient_mean[k] = LOWTIDE_LOAD(Floats, of.gradient_mean + strip + k * kSimdLanes);
      slope[k] = LOWTIDE_LOAD(Floats, of.slope + strip + k * kSimdLanes);
    }
    for (std::int64_t i = strip; i < whole; i += period) {
      for (int k = 0; k < kStripVectors; ++k) {
        Floats g = LOWTIDE_LOAD(Floats, of.gradient + i + k * kSimdLanes);
        const Floats distance = LOWTIDE_LOAD(Floats, of.x + i + k * kSimdLanes) - m.mean[k];
        if constexpr (kMasks) g = distance * m.factor[k] + m.bias[k] > Floats{} ? g : Floats{};
        const Floats d = m.factor[k] * (g - gradient_mean[k] - distance * slope[k]);
        if constexpr (kMeasures) {
          low = d < low ? d : low;
          high = d > high ? d : high;
          poison += d * 0.0f;
        }
        if constexpr (kWrites) LOWTIDE_STORE(dx + i + k * kSimdLanes, d);
      }
    }
  }
  for (std::int64_t i = whole, lane = whole % period; i < n; ++i, ++lane) {
    const float g = !kMasks || mapped(of.x[i], map, lane) > 0 ? of.gradient[i] : 0.0f;
    const float d =
        map.factor[lane] * (g - of.gradient_mean[lane] - (of.x[i] - map.mean[lane]) * of.slope[lane]);
    extremes.include(d);
    if constexpr (kWrites) dx[i] = d;
  }
  for (int k = 0; k < kSimdLanes; ++k) {
    extremes.join({low[k], high[k], poison[k]});
  }
}

}  // namespace

MapBackward::MapBackward(at::Tensor x, const ChannelMap& map, ChannelScatter scatter, at::Tensor positive)
    : x_(std::move(x)),
      positive_(std::move(positive)),
      relu_(map.relu),
      scatter_(std::move(scatter)),
      layout_(std::make_unique<Layout>(x_)),
      tables_(std::make_unique<MapTables>(*layout_, map)) {
  for (LaneTable* table : {&sum_, &product_, &low_, &high_}) *table = layout_->table();
}

MapBackward::~MapBackward() = default;

void MapBackward::begin(const at::Tensor& gradient) {
  if (layout_->by_image()) watched_ = gradient;
}

void MapBackward::image(std::int64_t index) {
  if (!watched_.defined()) return;
  float* gradient = watched_.data_ptr<float>();
  for (std::int64_t i = layout_->first_chunk(index); i < layout_->first_chunk(index + 1); ++i) {
    take(i, gradient, gradient);
  }
}

const float* MapBackward::prefetch_hint(std::int64_t index) const {
  return x_.data_ptr<float>() + index * (layout_->elements / x_.size(0));
}

void MapBackward::take(std::int64_t chunk, const float* gradient, float* masked) {
  const std::int64_t begin = layout_->begin(chunk), at = chunk * layout_->period;
  const bool stored = positive_.defined();
  const BackSpan span{gradient + begin, x_.data_ptr<float>() + begin,
                      stored ? positive_.data_ptr<std::uint8_t>() + layout_->signs_begin(chunk) : nullptr,
                      masked + begin};
  const auto sums = stored  ? gradient_sums<Signs::kStored>
                    : relu_ ? gradient_sums<Signs::kFromInput>
                            : gradient_sums<Signs::kNone>;
  sums(span, layout_->length(chunk), layout_->period, *tables_,
       {sum_.get() + at, product_.get() + at, low_.get() + at, high_.get() + at});
}

struct MapBackward::Terms {
  const float* gradient;  // that ReLU let pass
  const float* x;
  KeptVector<float> gradient_mean, slope;

  GradientTerms from(std::int64_t begin) const {
    return {gradient + begin, x + begin, gradient_mean.data(), slope.data()};
  }
};

MapGradients MapBackward::of(const at::Tensor& gradient, bool wants_residual,
                             const std::optional<ChunkEncoder::Format>& as_codes) {
  LOWTIDE_CHECK(!watched_.defined() || watched_.is_same(gradient), "another gradient was watched");
  at::Tensor masked = gradient;
  if (!watched_.defined()) {
    // Others may hold the gradient: what ReLU lets pass of it goes into memory of its own.
    if (positive_.defined()) masked = at::empty_like(x_);
    for_each_chunk(*layout_, [&](std::int64_t i, std::int64_t, std::int64_t) {
      take(i, gradient.data_ptr<float>(), masked.data_ptr<float>());
    });
  }
  MapGradients result;
  if (wants_residual) result.residual = masked;
  const Terms terms = finish_sums(masked, result);
  if (as_codes) {
    result.input_range = range_of_gradient(terms);
    result.input_codes = encode_gradient(terms, result.input_range, *as_codes);
  } else {
    result.input = at::empty_like(x_);
    result.input_range = write_gradient(terms, result.input.data_ptr<float>());
  }
  return result;
}

MapBackward::Terms MapBackward::finish_sums(const at::Tensor& masked, MapGradients& result) const {
  const auto channels = static_cast<std::size_t>(layout_->channels);
  const std::int64_t rows = layout_->elements / layout_->channels;
  KeptVector<float> gradient_mean(channels), slope(channels);
  KeptVector<double> sums(channels), products(channels);
  result.weight = at::empty({layout_->channels}, x_.options());
  result.bias = at::empty({layout_->channels}, x_.options());
  float *weight = result.weight.data_ptr<float>(), *bias = result.bias.data_ptr<float>();
  const auto lanes = static_cast<std::size_t>(layout_->chunks * layout_->period);
  for (std::size_t first = 0; first < lanes; first += channels) {
    for (std::size_t c = 0; c < channels; ++c) {
      sums[c] += sum_[first + c];
      products[c] += product_[first + c];
    }
  }
  for (std::size_t c = 0; c < channels; ++c) {
    const double sum = sums[c], product = products[c];
    // With x̂ = (x - mean) / deviation: dγ = Σ g x̂, dβ = Σ g, dx = γ / deviation (g - dβ / n - x̂ dγ / n); the last two terms
    // come from the mean and the deviation, where those are the batch's own.
    const double inverse = scatter_.inverse_deviation[c], n = static_cast<double>(rows);
    weight[c] = static_cast<float>(product * inverse);
    bias[c] = static_cast<float>(sum);
    if (!scatter_.of_batch) continue;
    gradient_mean[c] = static_cast<float>(sum / n);
    slope[c] = static_cast<float>(product * inverse * inverse / n);
  }
  return {masked.data_ptr<float>(), x_.data_ptr<float>(), layout_->spread(gradient_mean),
          layout_->spread(slope)};
}

// Exact, and yet most chunks are not looked at: those whose bounds lie within what was already measured cannot widen it. A few in
// a hundred are left.
Range MapBackward::range_of_gradient(const Terms& terms) const {
  const KeptVector<float> max_deviation = layout_->spread(scatter_.max_deviation);
  KeptVector<Extremes> bounds(static_cast<std::size_t>(layout_->chunks), Extremes::of_none()), measured;
  measured.reserve(bounds.size() + 2);  // not by what is found: the same memory in every step
  for (std::int64_t i = 0; i < layout_->chunks; ++i) {
    const std::int64_t at = i * layout_->period;
    bound_gradient({.least = low_.get() + at,
                    .most = high_.get() + at,
                    .max_deviation = max_deviation.data(),
                    .gradient_mean = terms.gradient_mean.data(),
                    .slope = terms.slope.data(),
                    .factor = tables_->factor.data()},
                   layout_->period, bounds[static_cast<std::size_t>(i)]);
  }
  const auto compute = masks() ? input_gradient<true, false, true> : input_gradient<false, false, true>;
  const auto look_at = [&](const KeptVector<std::size_t>& chunks) {
    const std::size_t before = measured.size();
    measured.resize(before + chunks.size(), Extremes::of_none());
    parallel_for(static_cast<std::int64_t>(chunks.size()), 1, [&](std::int64_t i) {
      const auto k = static_cast<std::size_t>(i);
      const auto chunk = static_cast<std::int64_t>(chunks[k]);
      compute(terms.from(layout_->begin(chunk)), layout_->length(chunk), layout_->period, *tables_, nullptr,
              measured[before + k]);
    });
  };
  const auto index_of = [&](auto chunk) { return static_cast<std::size_t>(chunk - bounds.begin()); };
  look_at({index_of(std::ranges::min_element(bounds, {}, &Extremes::min)),
           index_of(std::ranges::max_element(bounds, {}, &Extremes::max))});
  const float low = std::min(measured[0].min, measured[1].min),
              high = std::max(measured[0].max, measured[1].max);
  KeptVector<std::size_t> wider;
  wider.reserve(bounds.size());
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    // What is not a number is looked at too.
    const bool within = bounds[i].min >= low && bounds[i].max <= high && bounds[i].poison == 0;
    if (!within) wider.push_back(i);
  }
  look_at(wider);
  return range_of(measured);
}

Range MapBackward::write_gradient(const Terms& terms, float* dx) const {
  const auto compute = masks() ? input_gradient<true, true, true> : input_gradient<false, true, true>;
  KeptVector<Extremes> extremes(static_cast<std::size_t>(layout_->chunks), Extremes::of_none());
  for_each_chunk(*layout_, [&](std::int64_t i, std::int64_t begin, std::int64_t n) {
    compute(terms.from(begin), n, layout_->period, *tables_, dx + begin,
            extremes[static_cast<std::size_t>(i)]);
  });
  return range_of(extremes);
}

Quantized MapBackward::encode_gradient(const Terms& terms, const Range& range,
                                       const ChunkEncoder::Format& format) const {
  const ChunkEncoder encoder(x_, range, format);
  const auto compute = masks() ? input_gradient<true, true, false> : input_gradient<false, true, false>;
  constexpr std::int64_t kBetweenFetches =
      256;  // what the next need is fetched in between, while noise is drawn
  const std::int64_t at_once = layout_->first_level();
  for_each_chunk(*layout_, [&](std::int64_t, std::int64_t begin, std::int64_t n) {
    thread_local Scratch<float> memory;
    float* dx = memory.at_least(at_once);
    Extremes not_measured = Extremes::of_none();
    for (std::int64_t from = begin; from < begin + n; from += at_once) {
      const std::int64_t count = std::min(at_once, begin + n - from);
      compute(terms.from(from), count, layout_->period, *tables_, dx, not_measured);
      for (std::int64_t at = from; at < from + count; at += kBetweenFetches) {
        const std::int64_t some = std::min(kBetweenFetches, from + count - at);
        if (at + count + some <= layout_->elements) {
          fetch<Fetch::kToReadLater>(terms.gradient + at + count, some);
          fetch<Fetch::kToReadLater>(terms.x + at + count, some);
        }
        encoder.encode(dx + (at - from), at, some);
      }
    }
  });
  return encoder.codes();
}

}  // namespace lowtide::cpu
