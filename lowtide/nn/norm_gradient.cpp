#include <cmath>

#include "lowtide/base/simd.h"
#include "lowtide/nn/norm_layout.h"

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

// Σ g and Σ g (x - mean) of each lane, g being the gradient that ReLU let pass.
template <Signs kSigns>
LOWTIDE_SIMD void gradient_sums(const BackSpan& span, std::int64_t n, std::int64_t period,
                                const MapPointers& map, float* sum, float* product) {
  const std::int64_t whole = n / kStrip * kStrip;
  std::fill_n(sum, period, 0.0f);
  std::fill_n(product, period, 0.0f);
  for (std::int64_t strip = 0; strip < std::min(period, whole); strip += kStrip) {
    LOWTIDE_LOAD_MAP(map, strip)
    Floats sums[kStripVectors]{}, products[kStripVectors]{};
    for (std::int64_t i = strip, row = strip; i < whole; row += period) {
      Ints signs[kStripVectors]{};
      if constexpr (kSigns == Signs::kStored) {
        for (int k = 0; k < kStripVectors; ++k) {
          signs[k] = __builtin_convertvector(LOWTIDE_LOAD(Bytes, span.positive + row + k * kSimdLanes), Ints);
        }
      }
      for (std::int32_t bit = 1; bit < 1 << kSignsAByte && i < whole; bit <<= 1, i += period) {
        for (int k = 0; k < kStripVectors; ++k) {
          Floats g = LOWTIDE_LOAD(Floats, span.gradient + i + k * kSimdLanes);
          const Floats distance = LOWTIDE_LOAD(Floats, span.x + i + k * kSimdLanes) - mean[k];
          if constexpr (kSigns == Signs::kStored) {
            g = (signs[k] & bit) != 0 ? g : Floats{};
            LOWTIDE_STORE(span.masked + i + k * kSimdLanes, g);
          } else if constexpr (kSigns == Signs::kFromInput) {
            g = distance * factor[k] + bias[k] > Floats{} ? g : Floats{};
          }
          sums[k] += g;
          products[k] += g * distance;
        }
      }
    }
    for (int k = 0; k < kStripVectors; ++k) {
      LOWTIDE_STORE(sum + strip + k * kSimdLanes, sums[k]);
      LOWTIDE_STORE(product + strip + k * kSimdLanes, products[k]);
    }
  }
  const std::int64_t last = whole / period;
  for (std::int64_t i = whole, lane = whole % period; i < n; ++i, ++lane) {
    float g = span.gradient[i];
    if constexpr (kSigns == Signs::kStored) {
      g = (span.positive[last / kSignsAByte * period + lane] >> last % kSignsAByte & 1) != 0 ? g : 0.0f;
      span.masked[i] = g;
    } else if constexpr (kSigns == Signs::kFromInput) {
      g = mapped(span.x[i], map, lane) > 0 ? g : 0.0f;
    }
    sum[lane] += g;
    product[lane] += g * (span.x[i] - map.mean[lane]);
  }
}

// dx = factor (g - shift - (x - mean) slope)
struct GradientTerms {
  const float* gradient;
  const float* x;
  const float* shift;
  const float* slope;
};

template <bool kMasks, bool kWrites>
LOWTIDE_SIMD void input_gradient(const GradientTerms& of, std::int64_t n, std::int64_t period,
                                 const MapPointers& map, float* dx, Extremes& extremes) {
  const std::int64_t whole = n / kStrip * kStrip;
  Floats low = Floats{} + extremes.low, high = Floats{} + extremes.high, poison{};
  for (std::int64_t strip = 0; strip < std::min(period, whole); strip += kStrip) {
    LOWTIDE_LOAD_MAP(map, strip)
    Floats shift[kStripVectors], slope[kStripVectors];
    for (int k = 0; k < kStripVectors; ++k) {
      shift[k] = LOWTIDE_LOAD(Floats, of.shift + strip + k * kSimdLanes);
      slope[k] = LOWTIDE_LOAD(Floats, of.slope + strip + k * kSimdLanes);
    }
    for (std::int64_t i = strip; i < whole; i += period) {
      for (int k = 0; k < kStripVectors; ++k) {
        Floats g = LOWTIDE_LOAD(Floats, of.gradient + i + k * kSimdLanes);
        const Floats distance = LOWTIDE_LOAD(Floats, of.x + i + k * kSimdLanes) - mean[k];
        if constexpr (kMasks) g = distance * factor[k] + bias[k] > Floats{} ? g : Floats{};
        const Floats d = factor[k] * (g - shift[k] - distance * slope[k]);
        low = d < low ? d : low;
        high = d > high ? d : high;
        poison += d * 0.0f;
        if constexpr (kWrites) LOWTIDE_STORE(dx + i + k * kSimdLanes, d);
      }
    }
  }
  for (std::int64_t i = whole, lane = whole % period; i < n; ++i, ++lane) {
    const float g = !kMasks || mapped(of.x[i], map, lane) > 0 ? of.gradient[i] : 0.0f;
    const float d = map.factor[lane] * (g - of.shift[lane] - (of.x[i] - map.mean[lane]) * of.slope[lane]);
    extremes.low = std::min(extremes.low, d);
    extremes.high = std::max(extremes.high, d);
    extremes.poison += d * 0.0f;
    if constexpr (kWrites) dx[i] = d;
  }
  for (int k = 0; k < kSimdLanes; ++k) {
    extremes.low = std::min(extremes.low, low[k]);
    extremes.high = std::max(extremes.high, high[k]);
    extremes.poison += poison[k];
  }
}

at::Tensor floats_of(const std::vector<float>& values) {
  at::Tensor tensor = at::empty({static_cast<std::int64_t>(values.size())}, at::TensorOptions(at::kFloat));
  std::copy(values.begin(), values.end(), tensor.data_ptr<float>());
  return tensor;
}

}  // namespace

MapBackward::MapBackward(at::Tensor x, const ChannelMap& map, std::vector<float> inverse_deviation,
                         at::Tensor positive)
    : x_(std::move(x)),
      positive_(std::move(positive)),
      relu_(map.relu),
      inverse_deviation_(std::move(inverse_deviation)),
      layout_(std::make_unique<Layout>(x_)),
      tables_(std::make_unique<MapTables>(*layout_, map)) {
  const auto size = static_cast<std::size_t>(layout_->chunks * layout_->period);
  sum_.resize(size);
  product_.resize(size);
}

MapBackward::~MapBackward() = default;

void MapBackward::begin(const at::Tensor& gradient) {
  watched_ = gradient;
  watched_version_ = gradient._version();
}

void MapBackward::image(std::int64_t index) {
  if (!layout_->by_image()) return;
  float* gradient = watched_.data_ptr<float>();
  for (std::int64_t i = layout_->first_chunk(index); i < layout_->first_chunk(index + 1); ++i) {
    take(i, gradient, gradient);
  }
}

void MapBackward::ahead(std::int64_t image, std::int64_t row, std::int64_t rows) {
  constexpr std::int64_t kLine = 64 / sizeof(float);
  constexpr int kIntoSecondLevel = 2;
  const std::int64_t image_elements = layout_->elements / x_.size(0), row_elements = image_elements / rows;
  const float* from = x_.data_ptr<float>() + image * image_elements + row * row_elements;
  for (std::int64_t i = 0; i < row_elements; i += kLine) __builtin_prefetch(from + i, 0, kIntoSecondLevel);
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
  sums(span, layout_->length(chunk), layout_->period, *tables_, sum_.data() + at, product_.data() + at);
}

struct MapBackward::Terms {
  std::vector<float> shift, slope;
};

MapGradients MapBackward::of(const at::Tensor& gradient, bool wants_residual,
                             const std::optional<StretchEncoder::Format>& as_codes) {
  const bool watched = layout_->by_image() && watched_.defined() &&
                       gradient.data_ptr() == watched_.data_ptr() && gradient._version() == watched_version_;
  at::Tensor masked = gradient;
  if (!watched) {
    // Others may hold the gradient: what ReLU lets pass of it goes into memory of its own.
    if (positive_.defined()) masked = at::empty_like(x_);
    for_each_chunk(*layout_, [&](std::int64_t i, std::int64_t, std::int64_t) {
      take(i, gradient.data_ptr<float>(), masked.data_ptr<float>());
    });
  }
  MapGradients result;
  if (wants_residual) result.residual = masked;
  const Terms terms = finish_sums(result);
  if (as_codes) {
    result.input = at::full({1, 1, 1, 1}, std::numeric_limits<float>::quiet_NaN()).expand(x_.sizes());
    result.input_range = write_gradient(masked, terms, nullptr);
    result.input_codes = encode_gradient(masked, terms, result.input_range, *as_codes);
  } else {
    result.input = at::empty_like(x_);
    result.input_range = write_gradient(masked, terms, result.input.data_ptr<float>());
  }
  return result;
}

MapBackward::Terms MapBackward::finish_sums(MapGradients& result) const {
  const auto channels = static_cast<std::size_t>(layout_->channels);
  const std::int64_t rows = layout_->elements / layout_->channels;
  std::vector<float> weight(channels), bias(channels), shift(channels), slope(channels);
  for (std::size_t c = 0; c < channels; ++c) {
    double sum = 0, product = 0;
    for (std::size_t lane = c; lane < sum_.size(); lane += channels) {
      sum += sum_[lane];
      product += product_[lane];
    }
    // With x̂ = (x - mean) / deviation: dγ = Σ g x̂, dβ = Σ g, dx = γ / deviation (g - dβ / n - x̂ dγ / n).
    const double inverse = inverse_deviation_[c], n = static_cast<double>(rows);
    weight[c] = static_cast<float>(product * inverse);
    bias[c] = static_cast<float>(sum);
    shift[c] = static_cast<float>(sum / n);
    slope[c] = static_cast<float>(product * inverse * inverse / n);
  }
  result.weight = floats_of(weight);
  result.bias = floats_of(bias);
  return {layout_->spread(shift), layout_->spread(slope)};
}

Range MapBackward::write_gradient(const at::Tensor& masked, const Terms& terms, float* dx) const {
  const bool masks = relu_ && !positive_.defined();
  const auto compute = dx ? (masks ? input_gradient<true, true> : input_gradient<false, true>)
                          : (masks ? input_gradient<true, false> : input_gradient<false, false>);
  std::vector<Extremes> extremes(static_cast<std::size_t>(layout_->chunks));
  for_each_chunk(*layout_, [&](std::int64_t i, std::int64_t begin, std::int64_t n) {
    compute({masked.data_ptr<float>() + begin, x_.data_ptr<float>() + begin, terms.shift.data(),
             terms.slope.data()},
            n, layout_->period, *tables_, dx ? dx + begin : nullptr, extremes[static_cast<std::size_t>(i)]);
  });
  return range_of(extremes);
}

Quantized MapBackward::encode_gradient(const at::Tensor& masked, const Terms& terms, const Range& range,
                                       const StretchEncoder::Format& format) const {
  const StretchEncoder encoder(x_, range, format);
  const auto compute =
      relu_ && !positive_.defined() ? input_gradient<true, true> : input_gradient<false, true>;
  for_each_chunk(*layout_, [&](std::int64_t, std::int64_t begin, std::int64_t n) {
    thread_local std::vector<float> dx;
    dx.resize(static_cast<std::size_t>(layout_->chunk));
    Extremes known_already;
    compute({masked.data_ptr<float>() + begin, x_.data_ptr<float>() + begin, terms.shift.data(),
             terms.slope.data()},
            n, layout_->period, *tables_, dx.data(), known_already);
    encoder.encode(dx.data(), begin, n);
  });
  return encoder.codes();
}

}  // namespace lowtide::cpu
