#include <cmath>

#include "lowtide/base/simd.h"
#include "lowtide/engine/cpu/norm_layout.h"

namespace lowtide::cpu {
namespace {

// Squares about the mean, looked for again: Σ (d - Σ d / n)².
LOWTIDE_SIMD void square_again(const float* x, std::int64_t n, std::int64_t period, const float* sum,
                               float* squares) {
  std::fill_n(squares, period, 0.0f);
  for (std::int64_t row = 0; row < n; row += period) {
    for (std::int64_t lane = 0; lane < std::min(period, n - row); ++lane) {
      const std::int64_t count = (n - lane + period - 1) / period;
      const float distance = x[row + lane] - x[lane] - sum[lane] / static_cast<float>(count);
      squares[lane] += distance * distance;
    }
  }
}

// Σ d of every lane, d being the distance from the lane's first number, and Σ d² about its mean: numbers that lie close
// together far from 0 keep their digits so. Where the first number itself lies far from the others, most of Σ d² is taken
// off again and few digits are left: then there is a second look.
LOWTIDE_SIMD void lane_moments(const float* x, std::int64_t n, std::int64_t period, float* sum,
                               float* squares, float* low, float* high) {
  const std::int64_t whole = n / kStrip * kStrip;
  std::fill_n(sum, period, 0.0f);
  std::fill_n(squares, period, 0.0f);
  std::copy_n(x, std::min(n, period), low);
  std::copy_n(x, std::min(n, period), high);
  for (std::int64_t strip = 0; strip < std::min(period, whole); strip += kStrip) {
    Floats origin[kStripVectors], distances[kStripVectors], squared[kStripVectors], least[kStripVectors],
        most[kStripVectors];
    for (int k = 0; k < kStripVectors; ++k) {
      origin[k] = least[k] = most[k] = LOWTIDE_LOAD(Floats, x + strip + k * kSimdLanes);
      distances[k] = squared[k] = Floats{};
    }
    for (std::int64_t i = strip; i < whole; i += period) {
      for (int k = 0; k < kStripVectors; ++k) {
        const Floats v = LOWTIDE_LOAD(Floats, x + i + k * kSimdLanes), distance = v - origin[k];
        distances[k] += distance;
        squared[k] += distance * distance;
        least[k] = v < least[k] ? v : least[k];
        most[k] = v > most[k] ? v : most[k];
      }
    }
    for (int k = 0; k < kStripVectors; ++k) {
      LOWTIDE_STORE(sum + strip + k * kSimdLanes, distances[k]);
      LOWTIDE_STORE(squares + strip + k * kSimdLanes, squared[k]);
      LOWTIDE_STORE(low + strip + k * kSimdLanes, least[k]);
      LOWTIDE_STORE(high + strip + k * kSimdLanes, most[k]);
    }
  }
  for (std::int64_t i = whole, lane = whole % period; i < n; ++i, ++lane) {
    const float distance = x[i] - x[lane];
    sum[lane] += distance;
    squares[lane] += distance * distance;
    low[lane] = std::min(low[lane], x[i]);
    high[lane] = std::max(high[lane], x[i]);
  }
  constexpr float kFar = 32;  // a first number 5.6 deviations away
  bool far = false;
  for (std::int64_t lane = 0; lane < std::min(n, period); ++lane) {
    const std::int64_t count = (n - lane + period - 1) / period;
    const float all = squares[lane];
    squares[lane] =
        static_cast<float>(all - static_cast<double>(sum[lane]) * sum[lane] / static_cast<double>(count));
    far |= all > kFar * squares[lane];
  }
  if (far) square_again(x, n, period, sum, squares);
}

// Neighbouring lanes of a chunk that have the same number of elements.
struct LaneRun {
  std::int64_t at = 0;  // in a LaneTable
  std::int64_t lane = 0, lanes = 0;
  double count = 0;
};

template <typename Work>
void for_each_lane_run(const Layout& layout, const Work& work) {
  for (std::int64_t i = 0; i < layout.chunks; ++i) {
    const std::int64_t at = i * layout.period, rows = layout.length(i) / layout.period,
                       rest = layout.length(i) % layout.period;
    if (rest > 0) work(LaneRun{at, 0, rest, static_cast<double>(rows + 1)});
    if (rows > 0) work(LaneRun{at + rest, rest, layout.period - rest, static_cast<double>(rows)});
  }
}

LOWTIDE_SIMD void add_sums(const LaneRun& of, const float* origin, const float* sum, double* counts,
                           double* sums) {
  const double count = of.count;
  for (std::int64_t i = 0; i < of.lanes; ++i) {
    counts[i] += count;
    sums[i] += count * origin[i] + sum[i];
  }
}

LOWTIDE_SIMD void add_squares(const LaneRun& of, const float* origin, const float* sum, const float* squares,
                              const double* mean, double* total) {
  const double count = of.count, inverse = 1 / count;
  for (std::int64_t i = 0; i < of.lanes; ++i) {
    const double distance = origin[i] + sum[i] * inverse - mean[i];
    total[i] += squares[i] + count * distance * distance;
  }
}

LOWTIDE_SIMD void add_extremes(std::int64_t lanes, const float* low, const float* high, float* least,
                               float* most) {
  for (std::int64_t i = 0; i < lanes; ++i) {
    least[i] = low[i] < least[i] ? low[i] : least[i];
    most[i] = high[i] > most[i] ? high[i] : most[i];
  }
}

}  // namespace

void ChannelMoments::begin(const at::Tensor& x) {
  start(x);
  watched_ = layout_->by_image();
}

void ChannelMoments::start(const at::Tensor& x) {
  x_ = x;
  layout_ = std::make_unique<Layout>(x);
  for (LaneTable* table : {&origin_, &sum_, &squares_, &low_, &high_}) *table = layout_->table();
}

void ChannelMoments::image(std::int64_t index) {
  if (!layout_->by_image()) return;
  for (std::int64_t i = layout_->first_chunk(index); i < layout_->first_chunk(index + 1); ++i) take(i);
}

void ChannelMoments::take(std::int64_t chunk) {
  const std::int64_t at = chunk * layout_->period, n = layout_->length(chunk);
  const float* x = x_.data_ptr<float>() + layout_->begin(chunk);
  lane_moments(x, n, layout_->period, sum_.get() + at, squares_.get() + at, low_.get() + at,
               high_.get() + at);
  std::copy_n(x, std::min(n, layout_->period), origin_.get() + at);
}

ChannelStatistics ChannelMoments::of(const at::Tensor& x) {
  LOWTIDE_CHECK(!watched_ || x.is_same(x_), "another tensor was watched");
  if (!watched_) {
    start(x);
    for_each_chunk(*layout_, [&](std::int64_t i, std::int64_t, std::int64_t) { take(i); });
  }
  return joined();
}

// In double precision, where the mean of all is known first and squares are taken about that. One thread needs some 10 µs, and
// to wake a second takes as long.
ChannelStatistics ChannelMoments::joined() const {
  const auto lanes = static_cast<std::size_t>(layout_->period),
             channels = static_cast<std::size_t>(layout_->channels);
  KeptVector<double> counts(lanes), sums(lanes), squares(lanes);
  KeptVector<float> low(lanes, Extremes::of_none().min), high(lanes, Extremes::of_none().max);
  for_each_lane_run(*layout_, [&](const LaneRun& s) {
    add_sums(s, origin_.get() + s.at, sum_.get() + s.at, counts.data() + s.lane, sums.data() + s.lane);
    add_extremes(s.lanes, low_.get() + s.at, high_.get() + s.at, low.data() + s.lane, high.data() + s.lane);
  });
  const auto fold = [&](KeptVector<double>& of) {  // every lane has its channel's total then
    for (std::size_t i = channels; i < lanes; ++i) of[i % channels] += of[i];
    for (std::size_t i = channels; i < lanes; ++i) of[i] = of[i - channels];
  };
  fold(counts);
  fold(sums);
  KeptVector<double> mean(lanes);
  for (std::size_t i = 0; i < lanes; ++i) mean[i] = sums[i] / counts[i];
  for_each_lane_run(*layout_, [&](const LaneRun& s) {
    add_squares(s, origin_.get() + s.at, sum_.get() + s.at, squares_.get() + s.at, mean.data() + s.lane,
                squares.data() + s.lane);
  });
  fold(squares);
  ChannelStatistics result;
  for (KeptVector<float>* of : {&result.mean, &result.variance, &result.low, &result.high})
    of->resize(channels);
  for (std::size_t c = 0; c < channels; ++c) {
    const auto poison = static_cast<float>(mean[c] * 0.0);  // comparisons pass over a NaN, sums do not
    for (std::size_t i = c; i < lanes; i += channels) {
      low[c] = std::min(low[c], low[i]);
      high[c] = std::max(high[c], high[i]);
    }
    result.mean[c] = static_cast<float>(mean[c]);
    result.variance[c] = static_cast<float>(squares[c] / counts[c]);
    result.low[c] = low[c] + poison;
    result.high[c] = high[c] + poison;
  }
  return result;
}

ChannelMoments::ChannelMoments() = default;
ChannelMoments::~ChannelMoments() = default;

}  // namespace lowtide::cpu
