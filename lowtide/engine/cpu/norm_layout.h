#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>

#include "lowtide/base/error.h"
#include "lowtide/base/lanes.h"
#include "lowtide/base/parallel.h"
#include "lowtide/engine/cpu/norm_kernels.h"
#include "lowtide/quant/extremes.h"
#include "lowtide/quant/one_number.h"

// How the kernels around a convolution walk through memory; for norm_*.cpp alone.

namespace lowtide::cpu {

// Channels come round again every `period` elements, a common multiple of their number and of a strip. The kernels take
// a strip of a period at a time, four vectors whose constants and sums stay in registers, through a whole chunk.
inline constexpr int kStripVectors = 4;
inline constexpr std::int64_t kStrip = kStripVectors * kSimdLanes;

// Eight periods' ReLU signs share a row of bytes, a bit each.
inline constexpr int kSignsPerByte = 8;

// Chunks are about 64 KiB of floats, which a second-level cache holds for a second look. They do not cross from one
// image to the next, so that an image can be worked on as soon as it is there; unless images are so small that there
// would be more bookkeeping than work. Cut by the tensor's shape alone: sums over chunks are the same on any number of
// threads.
struct Layout {
  static constexpr std::int64_t kChunkElements = 16384;
  static constexpr std::int64_t kLeastImage = 4096;

  std::int64_t elements = 0, channels = 1, period = kStrip, chunk = 0, chunks = 0;

  Layout() = default;
  explicit Layout(const at::Tensor& x)
      : elements(x.numel()), channels(x.size(1)), period(std::lcm(channels, kStrip)) {
    LOWTIDE_CHECK(x.dim() == 4 && x.is_contiguous(at::MemoryFormat::ChannelsLast) && elements > 0,
                  "these kernels read channels-last tensors");
    const std::int64_t image = elements / x.size(0), block = kSignsPerByte * period;
    span_ = image >= kLeastImage ? image : elements;
    const std::int64_t blocks =
        std::clamp<std::int64_t>(kChunkElements / block, 1, (span_ + block - 1) / block);
    chunk = blocks * block;
    chunks_per_span_ = (span_ + chunk - 1) / chunk;
    chunks = elements / span_ * chunks_per_span_;
    by_image_ = span_ == image;
  }

  std::int64_t begin(std::int64_t i) const {
    return i / chunks_per_span_ * span_ + i % chunks_per_span_ * chunk;
  }
  std::int64_t length(std::int64_t i) const { return std::min(chunk, span_ - i % chunks_per_span_ * chunk); }

  // Whether an image is a number of whole chunks, and which.
  bool by_image() const { return by_image_; }
  std::int64_t first_chunk(std::int64_t image) const { return image * chunks_per_span_; }

  std::int64_t signs_begin(std::int64_t i) const { return i * (chunk / kSignsPerByte); }
  std::int64_t sign_bytes() const { return chunks * (chunk / kSignsPerByte); }

  // Elements whose floats and noise stay in the first-level cache: whole blocks of periods.
  std::int64_t first_level() const {
    constexpr std::int64_t kElements = 2048;
    const std::int64_t block = kSignsPerByte * period;
    return std::max(kElements / block, std::int64_t{1}) * block;
  }

  LaneTable table() const { return kept_array<float>(chunks * period); }

  // A channel's constants for every lane of a period.
  KeptVector<float> spread(std::span<const float> by_channel) const {
    KeptVector<float> lanes(static_cast<std::size_t>(period));
    for (std::size_t i = 0; i < lanes.size(); ++i) lanes[i] = by_channel[i % by_channel.size()];
    return lanes;
  }

 private:
  std::int64_t span_ = 0, chunks_per_span_ = 1;
  bool by_image_ = false;
};

template <typename Chunk>
void for_each_chunk(const Layout& layout, const Chunk& chunk) {
  constexpr std::int64_t kElementsPerThread = 32768;  // some 10 µs of work: less is not worth waking a thread
  const std::int64_t grain = kElementsPerThread / layout.length(0);
  parallel_for(layout.chunks, grain, [&](std::int64_t i) { chunk(i, layout.begin(i), layout.length(i)); });
}

// The constants of a ChannelMap for every lane of a period.
struct MapTables {
  KeptVector<float> mean, factor, bias;
  float floor = 0;  // of the result: 0 with ReLU, else minus infinity

  MapTables() = default;
  MapTables(const Layout& layout, const ChannelMap& map)
      : mean(layout.spread(map.mean)),
        factor(layout.spread(map.factor)),
        bias(layout.spread(map.bias)),
        floor(map.relu ? 0.0f : -std::numeric_limits<float>::infinity()) {}
};

struct MapPointers {
  const float* mean;
  const float* factor;
  const float* bias;
  float floor;

  MapPointers(const MapTables& tables)  // NOLINT: what a kernel takes of them
      : mean(tables.mean.data()),
        factor(tables.factor.data()),
        bias(tables.bias.data()),
        floor(tables.floor) {}
};

// The map's constants for the vectors of a strip, in registers. It loads and does not compute, so it may be inlined into code for
// other instructions.
struct MapStrip {
  Floats mean[kStripVectors], factor[kStripVectors], bias[kStripVectors];

  [[gnu::always_inline]] MapStrip(const MapPointers& map, std::int64_t strip) {
    for (int k = 0; k < kStripVectors; ++k) {
      mean[k] = LOWTIDE_LOAD(Floats, map.mean + strip + k * kSimdLanes);
      factor[k] = LOWTIDE_LOAD(Floats, map.factor + strip + k * kSimdLanes);
      bias[k] = LOWTIDE_LOAD(Floats, map.bias + strip + k * kSimdLanes);
    }
  }
};

inline float mapped(float x, const MapPointers& map, std::int64_t lane) {
  return (x - map.mean[lane]) * map.factor[lane] + map.bias[lane];
}

inline Range range_of(const KeptVector<Extremes>& parts) {
  Extremes all = Extremes::of_none();
  for (const Extremes& part : parts) all.join(part);
  return {one_number(all.least()), one_number(all.range())};
}

}  // namespace lowtide::cpu
