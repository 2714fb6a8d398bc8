#include "lowtide/engine/integer/tiles_impl.h"

namespace lowtide::integer {
namespace {

// Plain C++: what any machine can run, and the others are compared with.
struct Generic {
  struct Sum {
    std::int32_t lane[kLanes];
  };
  struct Scaled {
    float lane[kLanes];
  };
  using Vector = const std::uint8_t*;
  using Quad = const std::int8_t*;
  static constexpr int kSums = 2;

  static Sum zero() { return {}; }
  static Vector load(const std::uint8_t* p) { return p; }
  static Quad broadcast(const std::int8_t* p) { return p; }
  static void add_dot(Sum& sum, Vector v, Quad x) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const std::uint8_t* w = v + kQuad * lane;
      sum.lane[lane] += w[0] * x[0] + w[1] * x[1] + w[2] * x[2] + w[3] * x[3];
    }
  }
  static Scaled nothing() { return {}; }
  static void add_scaled(Scaled& total, const Sum& sum, float scale) {
    for (int lane = 0; lane < kLanes; ++lane) total.lane[lane] += static_cast<float>(sum.lane[lane]) * scale;
  }
  static void store(float* p, const Scaled& total) {
    for (int lane = 0; lane < kLanes; ++lane) p[lane] = total.lane[lane];
  }
  static void store(std::int32_t* p, const Sum& sum) {
    for (int lane = 0; lane < kLanes; ++lane) p[lane] = sum.lane[lane];
  }
  static void add_to(std::int32_t* p, const Sum& sum) {
    for (int lane = 0; lane < kLanes; ++lane) p[lane] += sum.lane[lane];
  }
};

void channel_sums(const std::int8_t* input, std::int64_t quads, std::int64_t plane, std::int64_t pixels,
                  std::int32_t* sum) {
  for (std::int64_t pixel = 0; pixel < pixels; ++pixel) {
    std::int32_t total = 0;
    for (std::int64_t quad = 0; quad < quads; ++quad) {
      const std::int8_t* x = input + quad * plane + kQuad * pixel;
      total += x[0] + x[1] + x[2] + x[3];
    }
    sum[pixel] = total;
  }
}

// Sixteen channels at once, so that the loops over taps and columns stay outside.
void depthwise_pixel(const DepthwisePixel& pixel, const DepthwiseWeights& w) {
  for (std::int64_t c = 0; c < w.channels; c += kLanes) {
    depthwise_channels(pixel, w, c, c + kLanes < w.channels ? c + kLanes : w.channels);
  }
}

void depthwise_row(const DepthwiseRow& row) {
  for (std::int64_t c = 0; c < row.channels; c += kLanes) {
    depthwise_row_channels(row, c, c + kLanes < row.channels ? c + kLanes : row.channels);
  }
}

}  // namespace

extern const TileKernels kGenericTiles;
const TileKernels kGenericTiles{dot_row<Generic>,      scaled_row<Generic>, gradient_tile<Generic>,
                                most_streams<Generic>, channel_sums,        depthwise_pixel,
                                depthwise_row};

}  // namespace lowtide::integer
