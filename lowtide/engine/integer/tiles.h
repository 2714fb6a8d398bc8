#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lowtide/engine/integer/winograd.h"

// The innermost loops of the integer engine, on plain memory, one set for each instruction set. All are
// sums of four products of bytes, unsigned times signed: sixteen sums side by side in a "vector", each
// over a "quad" of four neighbours along the dimension that is summed. On VNNI a quad is one instruction. A matrix unit
// (AMX) takes sixteen pixels and sixteen quads of each at once: there a pixel's quads are neighbours in memory.

namespace lowtide::integer {

inline constexpr int kLanes = 16;
inline constexpr int kQuad = 4;
inline constexpr int kVectorBytes = kLanes * kQuad;
inline constexpr int kMostVectors = 4;  // a kernel works on at most this many vectors at once

// Rows (or pixels) that a kernel works on at once where registers hold `fit` of them, each row with its own sums: a power
// of two, so that what is left over goes by halves. Two sums are made in a cycle, and each takes up to five: sixteen are
// enough to keep the multipliers busy.
constexpr int rows_at_once(int fit) {
  return fit >= 16 ? 16 : fit >= 8 ? 8 : fit >= 4 ? 4 : fit >= 2 ? 2 : 1;
}

// Memory to prefetch while a row is summed, some for every tile: the multipliers and the memory then work at the same time.
struct Prefetch {
  const float* write = nullptr;  // where the row's results will be written
  const float* read = nullptr;   // what will be read with them, laid out alike; or null
  std::int64_t step = 0;         // floats from a pixel to the next
  std::int64_t floats = 0;       // of a pixel; 0: nothing is fetched
};

// How packed pixels lie in memory: quad by quad, 4 bytes apart; or whole, each with all its quads.
struct PixelLayout {
  std::int64_t pixel_step = kQuad;  // bytes from one pixel to the next
  std::int64_t quad_step = kQuad;   // bytes from one quad to the next
};

// One row of output pixels of a convolution, or rows of a matrix product.
//   sum[pixel][lane] = Σ_tap Σ_quad dot(weight[tap][quad][lane], input at tap + quad and pixel as laid out)
struct DotRow {
  const std::int8_t* input = nullptr;    // of the first pixel
  const std::uint8_t* weight = nullptr;  // [tap][quad][vectors][16][4]
  const std::int32_t* tap = nullptr;     // bytes from `input`
  int taps = 0;
  std::int64_t quads = 0;
  PixelLayout layout;
  std::int32_t* sum = nullptr;  // out: [pixel][vectors · 16]
  std::int64_t pixels = 0;
  int run = 1;  // neighbouring taps that read neighbouring pixels; all runs have this length
  Prefetch prefetch{};
};

// One row of output pixels where each input channel has a scale of its own, over channel planes.
//   sum[pixel][lane] = Σ_channel scale[channel] · Σ_tap dot(weight[channel][tap][lane], input at channel·channel_step + tap + pixel)
struct ScaledRow {
  const std::int8_t* input = nullptr;    // of the first pixel; pixels lie 1 byte apart
  const std::uint8_t* weight = nullptr;  // [channel][tap][vectors][16][4]
  const std::int32_t* tap = nullptr;     // bytes from `input`: a quad of neighbouring columns each
  int taps = 0;
  std::int64_t channels = 0;
  std::int64_t channel_step = 0;  // bytes from a channel's plane to the next
  const float* scale = nullptr;   // by channel
  float* sum = nullptr;           // out: [pixel][vectors · 16]
  std::int64_t pixels = 0;
  Prefetch prefetch{};
};

// A tile of a convolution's weight gradient: `streams` views of the input, each at other columns, against the same error.
//   sum[stream][lane] += Σ_row Σ_quad dot(error[row][quad][lane], stream at row·pitch + 4·quad)
struct GradientTile {
  const std::int8_t* const* stream = nullptr;  // first byte of each base stream
  int streams = 0;                             // base streams; 1 .. most_streams(vectors, offsets)
  int offsets = 1;                      // 1 or 3: each base stream is used at 0 .. offsets - 1 bytes on
  const std::uint8_t* error = nullptr;  // [row][quad][vectors][16][4]
  std::int64_t rows = 0, quads = 0;
  std::int64_t pitch = 0;        // bytes from a row of a stream to the next
  std::int64_t error_pitch = 0;  // bytes from a row of the error to the next
  std::int32_t* sum = nullptr;   // in and out: [stream][offset][vectors · 16]
};

// Channel planes of a weight gradient's error against its input as lanes: see matrix_weight_gradient.cpp.
//   sum[stream][plane][lane] += Σ_item Σ_quad dot(planes[item][plane][quad], stream[item][quad][lane])
struct PlaneTile {
  const std::uint8_t* planes = nullptr;  // a quad is four bytes of a plane
  std::int64_t plane_step = 0;           // bytes from a plane to the next
  int rows = 0;                          // planes; 1 to 16
  const std::int8_t* const* stream = nullptr;
  int streams = 0;               // 1 to kMostPlaneStreams
  std::int64_t stream_step = 0;  // bytes from a quad's vector to the next quad's
  std::int64_t quads = 0, items = 1;
  std::int64_t planes_item = 0, stream_item = 0;  // bytes from an item to the next
  std::int32_t* sum = nullptr;                    // in and out: [stream][16][16], `rows` of each
};
inline constexpr int kMostPlaneStreams = 4;

// A row of pixels, `step` bytes apart, as lanes: to[quad of pixels][vector][16][4], zeros after the last pixel. Whole
// vectors are read, also where fewer lanes are wanted.
struct LaneRow {
  const std::int8_t* from = nullptr;
  std::int64_t step = 0, pixels = 0, vectors = 0;
  std::int8_t* to = nullptr;
  std::int32_t* sum = nullptr;  // out: of each lane, [vector][16]
};

// A depthwise convolution's outputs at neighbouring pixels with the same valid taps, in every channel:
//   out[c] = scale[c] · (class_sum[c] + Σ_tap x·w) + (window_scale[c] · Σ_tap x + class_value[c])
struct DepthwiseTap {
  std::int64_t weight = 0;  // element of the weights at which the tap's channels start
  std::int64_t source = 0;  // byte of the image relative to where the output stands
};
struct DepthwiseRun {
  const std::uint8_t* source = nullptr;
  std::int64_t pixels = 0;
  std::int64_t source_step = 0;        // bytes from a pixel's source to the next one's
  const DepthwiseTap* taps = nullptr;  // in the order of what they read
  std::int64_t count = 0;
  const std::int32_t* class_sum = nullptr;
  const float* class_value = nullptr;
  float* out = nullptr;
  std::int64_t out_step = 0;  // floats from a pixel to the next
};
struct DepthwiseWeights {
  const std::int32_t* weight = nullptr;  // each within ±255
  const float* scale = nullptr;
  const float* window_scale = nullptr;
  std::int64_t channels = 0;
};

// A row's part of a depthwise weight gradient, for neighbouring kernel columns:
//   sum[tap · channels + c] += Σ_col error[col · channels + c] · input[(col · step + tap) · channels + c]
struct DepthwiseRow {
  const std::uint8_t* error = nullptr;
  const std::uint8_t* input = nullptr;
  std::int64_t cols = 0, step = 1, channels = 0;
  int taps = 1;
  std::int32_t* sum = nullptr;
};

// kGenericMatrix is what kAmx does in plain C++: for comparison, on machines that have no matrix unit.
enum class InstructionSet { kGeneric, kGenericMatrix, kAvx2, kVnni, kAmx };

// A matrix unit multiplies two tiles of bytes in one instruction.
constexpr bool has_matrix_unit(InstructionSet set) {
  return set == InstructionSet::kAmx || set == InstructionSet::kGenericMatrix;
}

struct TileKernels {
  InstructionSet set;
  void (*dot_row)(const DotRow& row, int vectors);               // 1 to 4 vectors
  void (*scaled_row)(const ScaledRow& row, int vectors);         // 1 or 2
  void (*gradient_tile)(const GradientTile& tile, int vectors);  // 1, 2 or 4
  int (*most_streams)(int vectors, int offsets);
  // sum[pixel] = Σ of all bytes of its quads
  void (*channel_sums)(const std::int8_t* input, std::int64_t quads, const PixelLayout& layout,
                       std::int64_t pixels, std::int32_t* sum);
  void (*depthwise_run)(const DepthwiseRun& run, const DepthwiseWeights& weights);
  void (*depthwise_row)(const DepthwiseRow& row);
  WinogradKernels winograd;
  // Null where there is no matrix unit.
  void (*plane_tile)(const PlaneTile& tile) = nullptr;
  void (*pack_lanes)(const LaneRow& row) = nullptr;
  void (*release)() = nullptr;  // ends a thread's use of the unit: see TileUse

  // How dot_row and channel_sums read pixels: whole, each with all its quads; or quad by quad.
  bool reads_whole_pixels() const { return has_matrix_unit(set); }
  PixelLayout layout(std::int64_t quads, std::int64_t pixels) const {
    return reads_whole_pixels() ? PixelLayout{quads * kQuad, kQuad} : PixelLayout{kQuad, pixels * kQuad};
  }
};

// While a thread has one of these, dot_row and plane_tile may leave a matrix unit set up as they need it. Other libraries
// have their own use for it, and none of their code may run meanwhile.
class TileUse {
 public:
  explicit TileUse(const TileKernels& tiles) : tiles_(tiles) {}
  ~TileUse() {
    if (tiles_.release) tiles_.release();
  }
  TileUse(const TileUse&) = delete;
  TileUse& operator=(const TileUse&) = delete;

 private:
  const TileKernels& tiles_;
};

std::string instruction_set_name(InstructionSet set);

// Those that this build has and this machine can run, the fastest first.
std::vector<InstructionSet> instruction_sets();

const TileKernels& tile_kernels(InstructionSet set);

}  // namespace lowtide::integer
