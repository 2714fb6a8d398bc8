#include "lowtide/engine/integer/tiles_impl.h"
#include "lowtide/engine/integer/winograd_impl.h"

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

struct GenericPairs {
  struct Sum {
    std::uint32_t lane[kLanes];  // unsigned: these sums wrap
  };
  using Vector = const std::int16_t*;
  using Pair = const std::int16_t*;
  static constexpr int kSums = 2;

  static Sum zero() { return {}; }
  static Vector load(const std::int16_t* p) { return p; }
  static Pair broadcast(const std::int16_t* p) { return p; }
  static void add_dot(Sum& sum, Vector v, Pair x) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const std::int16_t* w = v + kPair * lane;
      sum.lane[lane] += static_cast<std::uint32_t>(w[0] * x[0]) + static_cast<std::uint32_t>(w[1] * x[1]);
    }
  }
  static void load_codes(const std::uint8_t* first, const std::uint8_t* second, Shorts& to) {
    for (int lane = 0; lane < kLanes; ++lane) {
      to[kPair * lane] = first[lane];
      to[kPair * lane + 1] = second[lane];
    }
  }
  static void load_codes(const std::uint8_t* p, Shorts& to) {
    for (int i = 0; i < kPairVector; ++i) to[i] = p[i];
  }
  static void store(std::int32_t* p, const Sum& sum) {
    for (int lane = 0; lane < kLanes; ++lane) p[lane] = static_cast<std::int32_t>(sum.lane[lane]);
  }
};

}  // namespace

extern const TileKernels kGenericTiles;
const TileKernels kGenericTiles{dot_row<Generic>,      scaled_row<Generic>,    gradient_tile<Generic>,
                                most_streams<Generic>, plain_channel_sums,     plain_depthwise_pixel,
                                plain_depthwise_row,   kWinograd<GenericPairs>};

}  // namespace lowtide::integer
