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

int dot(const std::uint8_t* u, const std::int8_t* s) {
  return u[0] * s[0] + u[1] * s[1] + u[2] * s[2] + u[3] * s[3];
}

void matrix_dot_row(const DotRow& row, int vectors) {
  for (std::int64_t pixel = 0; pixel < row.pixels; ++pixel) {
    std::int32_t* sum = row.sum + pixel * vectors * kLanes;
    for (int lane = 0; lane < vectors * kLanes; ++lane) sum[lane] = 0;
    const std::uint8_t* weight = row.weight;
    for (int tap = 0; tap < row.taps; ++tap) {
      for (std::int64_t quad = 0; quad < row.quads; ++quad) {
        const std::int8_t* x =
            row.input + row.tap[tap] + quad * row.layout.quad_step + pixel * row.layout.pixel_step;
        for (int lane = 0; lane < vectors * kLanes; ++lane, weight += kQuad) sum[lane] += dot(weight, x);
      }
    }
  }
}

void pack_lanes(const LaneRow& row) {
  const std::int64_t lanes = row.vectors * kLanes, quads = (row.pixels + kQuad - 1) / kQuad;
  for (std::int64_t lane = 0; lane < lanes; ++lane) {
    std::int32_t sum = 0;
    for (std::int64_t i = 0; i < quads * kQuad; ++i) {
      const std::int8_t x = i < row.pixels ? row.from[i * row.step + lane] : std::int8_t{0};
      row.to[(i / kQuad * lanes + lane) * kQuad + i % kQuad] = x;
      sum += x;
    }
    row.sum[lane] = sum;
  }
}

void plane_tile(const PlaneTile& tile) {
  for (int s = 0; s < tile.streams; ++s) {
    for (std::int64_t row = 0; row < tile.rows; ++row) {
      std::int32_t* sum = tile.sum + (s * kLanes + row) * kLanes;
      for (std::int64_t item = 0; item < tile.items; ++item) {
        const std::uint8_t* plane = tile.planes + item * tile.planes_item + row * tile.plane_step;
        const std::int8_t* stream = tile.stream[s] + item * tile.stream_item;
        for (std::int64_t quad = 0; quad < tile.quads; ++quad, plane += kQuad, stream += tile.stream_step) {
          for (int lane = 0; lane < kLanes; ++lane) sum[lane] += dot(plane, stream + lane * kQuad);
        }
      }
    }
  }
}

}  // namespace

TileKernels with_plain_matrix(TileKernels others) {
  others.set = InstructionSet::kGenericMatrix;
  others.pack_lanes = pack_lanes;
  others.dot_row = matrix_dot_row;
  others.plane_tile = plane_tile;
  return others;
}

extern const TileKernels kGenericTiles;
const TileKernels kGenericTiles{.set = InstructionSet::kGeneric,
                                .dot_row = dot_row<Generic>,
                                .scaled_row = scaled_row<Generic>,
                                .gradient_tile = gradient_tile<Generic>,
                                .most_streams = most_streams<Generic>,
                                .channel_sums = plain_channel_sums,
                                .depthwise_run = plain_depthwise_run,
                                .depthwise_row = plain_depthwise_row,
                                .winograd = kWinograd<GenericPairs>};

}  // namespace lowtide::integer
