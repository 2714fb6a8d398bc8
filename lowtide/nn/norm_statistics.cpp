#include <cmath>

#include "lowtide/base/simd.h"
#include "lowtide/nn/norm_layout.h"

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

}  // namespace

void ChannelMoments::begin(const at::Tensor& x) {
  x_ = x.data_ptr<float>();
  layout_ = std::make_unique<Layout>(x);
  for (LaneTable* table : {&sum_, &squares_, &low_, &high_}) *table = layout_->table();
}

void ChannelMoments::image(std::int64_t index) {
  if (!layout_->by_image()) return;
  for (std::int64_t i = layout_->first_chunk(index); i < layout_->first_chunk(index + 1); ++i) take(i);
}

void ChannelMoments::take(std::int64_t chunk) {
  const std::int64_t at = chunk * layout_->period;
  lane_moments(x_ + layout_->begin(chunk), layout_->length(chunk), layout_->period, sum_.get() + at,
               squares_.get() + at, low_.get() + at, high_.get() + at);
}

ChannelStatistics ChannelMoments::of(const at::Tensor& x) {
  const bool watched = layout_ && layout_->by_image() && x.data_ptr() == x_;
  if (!watched) {
    begin(x);
    for_each_chunk(*layout_, [&](std::int64_t i, std::int64_t, std::int64_t) { take(i); });
  }
  const auto channels = static_cast<std::size_t>(layout_->channels);
  ChannelStatistics result{std::vector<float>(channels), std::vector<float>(channels),
                           std::vector<float>(channels), std::vector<float>(channels)};
  const std::int64_t parts_a_channel = layout_->chunks * (layout_->period / layout_->channels);
  const std::int64_t grain = std::max<std::int64_t>(1, 5'000 / parts_a_channel);
  at::parallel_for(0, layout_->channels, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t c = begin; c < end; ++c) join_channel(c, result);
  });
  return result;
}

void ChannelMoments::join_channel(std::int64_t channel, ChannelStatistics& result) const {
  // Chan, Golub and LeVeque 1979, equations 2.1: moments of a union from those of its parts.
  double count = 0, mean = 0, squares = 0;
  float low = std::numeric_limits<float>::infinity(), high = -low;
  for (std::int64_t i = 0; i < layout_->chunks; ++i) {
    for (std::int64_t lane = channel; lane < layout_->period; lane += layout_->channels) {
      const std::int64_t more = (layout_->length(i) - lane + layout_->period - 1) / layout_->period;
      if (more <= 0) continue;
      const auto at = static_cast<std::size_t>(i * layout_->period + lane);
      const auto n = static_cast<double>(more);
      const double distance = static_cast<double>(x_[layout_->begin(i) + lane]) + sum_[at] / n - mean;
      const double share = n / (count + n);
      squares += squares_[at] + distance * distance * count * share;
      mean += distance * share;
      count += n;
      low = std::min(low, low_[at]);
      high = std::max(high, high_[at]);
    }
  }
  const auto c = static_cast<std::size_t>(channel);
  const auto poison = static_cast<float>(mean * 0.0);  // comparisons pass over a NaN, sums do not
  result.mean[c] = static_cast<float>(mean);
  result.variance[c] = static_cast<float>(squares / count);
  result.low[c] = low + poison;
  result.high[c] = high + poison;
}

ChannelMoments::ChannelMoments() = default;
ChannelMoments::~ChannelMoments() = default;

}  // namespace lowtide::cpu
