// The gradient at a convolution's weight: a product over all pixels, error × input. Both lie with the pixels as rows, so
// tiles are transposed on their way to the tensor cores, which they can do with halves alone: bytes become halves. Sums of
// products of bytes are exact in a float below 2^24; they go over into integers before that, and integers are summed in
// any order. The last block of a tile turns them into values.
#include <algorithm>
#include <cmath>

#include "lowtide/engine/cuda/gather.cuh"
#include "lowtide/engine/cuda/launch.h"
#include "lowtide/engine/cuda/weight_gradient.cuh"

namespace lowtide::cuda {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / kWarp;
constexpr int kPixels = 64;       // of a chunk
constexpr int kExactTerms = 256;  // 255² · 256 < 2^24
constexpr int kBlocks = 528;      // that share the work at most: four for a multiprocessor of an H200
// What a chunk takes of a block's time, in additions of a word to the sums in memory. An estimate: some 0.5 µs, at 100 words
// in a nanosecond.
constexpr double kChunkWords = 50'000;
constexpr int kGroup = 8;  // halves that lie together in shared memory, of one pixel

// How the work is cut into tiles of the gradient and these into runs of chunks.
struct Cut {
  int tile_rows, tile_cols;  // outputs; taps and inputs
  int row_tiles, col_tiles, tile_taps, splits, chunks, chunks_per_split;
  PixelDivisor outputs;

  explicit Cut(const ConvGeometry& g)
      : tile_rows(g.outputs <= 16   ? 16
                  : g.outputs <= 32 ? 32
                                    : 64),
        tile_cols(g.taps() == 1 ? 64 : 48),
        outputs(g.rows > 0 ? g.rows : 1, g.cols > 0 ? g.cols : 1) {
    row_tiles = divide_up(g.outputs, tile_rows);
    col_tiles = divide_up(g.taps() * g.inputs, tile_cols);
    const int most = tile_cols / g.inputs + 2;
    tile_taps = most < g.taps() ? most : g.taps();
    chunks = g.images > 0 ? divide_up(g.output_pixels(), kPixels) : 1;
    const auto lesser = [](int x, int y) { return x < y ? x : y; };
    const auto greater = [](int x, int y) { return x > y ? x : y; };
    // chunks / splits · kChunkWords + splits · words is least here.
    const double words = static_cast<double>(g.outputs) * g.taps() * g.inputs;
    const int best = static_cast<int>(std::sqrt(kChunkWords * chunks / words));
    const int splits_wanted = greater(lesser(divide_up(kBlocks, row_tiles * col_tiles), greater(best, 1)),
                                      divide_up(chunks, kMostPixelsPerBlock / kPixels));
    chunks_per_split = divide_up(chunks, splits_wanted < chunks ? splits_wanted : chunks);
    splits = divide_up(chunks, chunks_per_split);
  }

  __host__ __device__ TileCounts words() const {
    return {tile_rows * tile_cols, tile_cols, tile_rows * tile_taps};
  }
};

struct OutputPixel {
  int image, row, col;  // the row and the column of its window's first tap
  bool there;

  __device__ OutputPixel(const ConvGeometry& g, const PixelDivisor& outputs, int pixel) {
    there = pixel < g.output_pixels();
    outputs.split(pixel, image, row, col);
    row = row * g.stride_rows - g.pad_rows;
    col = col * g.stride_cols - g.pad_cols;
  }
  __device__ bool reads(const ConvGeometry& g, int tap_row, int tap_col) const {
    return there && static_cast<unsigned>(row + tap_row) < static_cast<unsigned>(g.height) &&
           static_cast<unsigned>(col + tap_col) < static_cast<unsigned>(g.width);
  }
};

// Where sixteen columns of the input matrix begin: found once by the thread that loads them for every pixel.
struct ColumnStart {
  int row, col, channel;  // of a tap; the row lies beyond the kernel where there is no such column

  __device__ void set(const ConvGeometry& g, int column) {
    const int tap = column / g.inputs;
    row = tap / g.kernel_cols;
    col = tap % g.kernel_cols;
    channel = column % g.inputs;
  }
};

// Sixteen columns of a pixel's row of the input matrix.
template <int kUnit>
__device__ uint4 input_columns(const WeightGradientArguments& a, const OutputPixel& pixel,
                               const ColumnStart& start) {
  const ConvGeometry& g = a.g;
  union {
    std::uint8_t bytes[16];
    uint4 all;
  } result;
  result.all = make_uint4(0, 0, 0, 0);
  int row = start.row, col = start.col, channel = start.channel;
#pragma unroll
  for (int k = 0; k < 16; k += kUnit) {
    if (row < g.kernel_rows && pixel.reads(g, row, col)) {
      const std::uint8_t* from =
          a.x.code +
          ((static_cast<long long>(pixel.image) * g.height + pixel.row + row) * g.width + pixel.col + col) *
              g.inputs +
          channel;
      if constexpr (kUnit == 16) result.all = __ldg(reinterpret_cast<const uint4*>(from));
      if constexpr (kUnit == 8)
        *reinterpret_cast<uint2*>(result.bytes + k) = __ldg(reinterpret_cast<const uint2*>(from));
      if constexpr (kUnit == 4)
        *reinterpret_cast<unsigned*>(result.bytes + k) = __ldg(reinterpret_cast<const unsigned*>(from));
      if constexpr (kUnit == 1) result.bytes[k] = __ldg(from);
    }
    if constexpr (kUnit < 16) {
      channel += kUnit;
      if (channel >= g.inputs) {
        channel = 0;
        if (++col == g.kernel_cols) col = 0, ++row;
      }
    }
  }
  return result.all;
}

// Sixteen channels of a pixel's error.
__device__ uint4 error_columns(const WeightGradientArguments& a, int pixel, int channel) {
  const int outputs = a.g.outputs;
  if (pixel >= a.g.output_pixels() || channel >= outputs) return make_uint4(0, 0, 0, 0);
  const std::uint8_t* from = a.dy.code + static_cast<long long>(pixel) * outputs + channel;
  if (outputs % 16 == 0) return __ldg(reinterpret_cast<const uint4*>(from));
  union {
    std::uint8_t bytes[16];
    uint4 all;
  } result;
#pragma unroll
  for (int k = 0; k < 16; ++k) result.bytes[k] = channel + k < outputs ? __ldg(from + k) : 0;
  return result.all;
}

// Sixteen bytes as halves, in two groups.
__device__ void store_halves(const uint4& bytes, std::uint8_t* first, std::uint8_t* second) {
  const auto halves = [](unsigned word, unsigned& low, unsigned& high) {
    low = halves_of_low_bytes(word, minus_bias(0));
    high = halves_of_high_bytes(word, minus_bias(0));
  };
  uint4 a, b;
  halves(bytes.x, a.x, a.y);
  halves(bytes.y, a.z, a.w);
  halves(bytes.z, b.x, b.y);
  halves(bytes.w, b.z, b.w);
  *reinterpret_cast<uint4*>(first) = a;
  *reinterpret_cast<uint4*>(second) = b;
}

// Sums of the input's codes by column, of the halves that a warp multiplies anyway: in halves first, which are exact up to
// 2048, then in floats, exact up to 2^24.
template <int kNTiles>
struct InputSums {
  static constexpr int kExactSteps = 4;  // of 16 pixels: 2 · 255 each
  unsigned halves[kNTiles]{};
  float floats[kNTiles]{};
  int steps = 0;

  __device__ void add(int tile, unsigned first, unsigned second) {
    asm("{.reg .b32 t; add.rn.f16x2 t, %1, %2; add.rn.f16x2 %0, %0, t;}"
        : "+r"(halves[tile])
        : "r"(first), "r"(second));
  }
  __device__ void end_step() {
    if (++steps == kExactSteps) flush();
  }
  __device__ void flush() {
#pragma unroll
    for (int n = 0; n < kNTiles; ++n) {
      float low, high;
      asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}"
          : "=f"(low), "=f"(high)
          : "r"(halves[n]));
      floats[n] += low + high;
      halves[n] = 0;
    }
    steps = 0;
  }
  // Adds to the sums of the block's columns.
  __device__ void store(int* sums) {
    flush();
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
    for (int n = 0; n < kNTiles; ++n) {
      float sum = floats[n];
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      if (lane % 4 == 0) atomicAdd(sums + n * 8 + lane / 4, static_cast<int>(sum));
    }
  }
};

template <int kRowWarps, int kNTiles>
struct Shared {
  static constexpr int kRows = 16 * kRowWarps, kCols = 8 * kNTiles;
  static constexpr int kGroupBytes = kPixels * kGroup * 2;
  static constexpr int kErrorBytes = kRows / kGroup * kGroupBytes, kInputBytes = kCols / kGroup * kGroupBytes;

  std::uint8_t error[kErrorBytes];  // [group of channels][pixel][8 halves]
  std::uint8_t input[kInputBytes];  // likewise
  int sums[kRows * kCols];
  int input_sums[kCols];
};

// Which of a tile's taps read inside the image, a bit each, and which pixels of a chunk some tap reads outside it.
struct ChunkEdges {
  unsigned long long taps[kPixels];
  unsigned partial[kPixels / kWarp];

  // By the first threads, one a pixel.
  __device__ void find(const WeightGradientArguments& a, const Cut& cut, int first_pixel, int first_tap) {
    const int thread = static_cast<int>(threadIdx.x);
    if (thread >= kPixels) return;
    const OutputPixel pixel(a.g, cut.outputs, first_pixel + thread);
    const int count = min(cut.tile_taps, a.g.taps() - first_tap);
    unsigned long long inside = 0;
    for (int i = 0; i < count; ++i) {
      const int tap = first_tap + i;
      if (pixel.reads(a.g, tap / a.g.kernel_cols, tap % a.g.kernel_cols)) inside |= 1ull << i;
    }
    taps[thread] = inside;
    const unsigned some = __ballot_sync(0xffffffffu, inside != (1ull << count) - 1);
    if (thread % kWarp == 0) partial[thread / kWarp] = some;
  }
};

// Σ of the error over the pixels that a tap reaches: only where the input's codes do not have 0 at 0, which after a ReLU
// they do. Summed over all pixels, less those that the tap does not reach, which are few.
template <typename SharedMemory>
__device__ void add_error_sums(const WeightGradientArguments& a, const Cut& cut, const SharedMemory& shared,
                               int first_pixel, int first_tap, int* error_sums) {
  __shared__ ChunkEdges edges;
  __shared__ int totals[SharedMemory::kRows];
  const int thread = static_cast<int>(threadIdx.x);
  const auto error = [&](int channel, int pixel) {
    const auto* half =
        reinterpret_cast<const unsigned short*>(shared.error + channel / kGroup * SharedMemory::kGroupBytes +
                                                channel % kGroup * 2 + pixel * kGroup * 2);
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(*half));
    return value;
  };
  edges.find(a, cut, first_pixel, first_tap);
  if (thread < SharedMemory::kRows) {
    float sum = 0;
    for (int p = 0; p < kPixels; ++p) sum += error(thread, p);
    totals[thread] = static_cast<int>(sum);
  }
  __syncthreads();
  for (int i = thread; i < cut.tile_taps * SharedMemory::kRows; i += kThreads) {
    const int tap = i / SharedMemory::kRows, channel = i % SharedMemory::kRows;
    float outside = 0;
    for (int word = 0; word < kPixels / kWarp; ++word) {
      for (unsigned left = edges.partial[word]; left != 0; left &= left - 1) {
        const int pixel = word * kWarp + __ffs(static_cast<int>(left)) - 1;
        if ((edges.taps[pixel] >> tap & 1) == 0) outside += error(channel, pixel);
      }
    }
    error_sums[i] += totals[channel] - static_cast<int>(outside);
  }
}

// Turns a tile's sums into values.
__device__ void write_tile(const WeightGradientArguments& a, const Cut& cut, const TileWords& words,
                           int row_tile, int col_tile) {
  const GradientValues values(a);
  const int first_tap = col_tile * cut.tile_cols / a.g.inputs, cols = a.g.taps() * a.g.inputs;
  for (int i = static_cast<int>(threadIdx.x); i < cut.tile_rows * cut.tile_cols; i += kThreads) {
    const int row = i / cut.tile_cols, output = row_tile * cut.tile_rows + row;
    const int at = i % cut.tile_cols, col = col_tile * cut.tile_cols + at;
    if (output >= a.g.outputs || col >= cols) continue;
    const int tap = col / a.g.inputs;
    a.dw[static_cast<long long>(output) * cols + col] =
        values.value(pixels_of_tap(a.g, tap), __ldcg(words.products + i), __ldcg(words.inputs + at),
                     __ldcg(words.errors + (tap - first_tap) * cut.tile_rows + row));
  }
}

template <int kRowWarps, int kNTiles, int kUnit>
__global__ void __launch_bounds__(kThreads, 4) weight_gradient_kernel(WeightGradientArguments a, Cut cut) {
  using Memory = Shared<kRowWarps, kNTiles>;
  constexpr int kDepthWarps = kWarps / kRowWarps, kErrorUnits = Memory::kRows / 16,
                kInputUnits = Memory::kCols / 16;
  constexpr int kInputLoads = (kInputUnits + 1) / 2, kErrorLoads = (kErrorUnits + 1) / 2;
  extern __shared__ __align__(16) std::uint8_t raw[];
  auto& shared = *reinterpret_cast<Memory*>(raw);
  int* error_sums = reinterpret_cast<int*>(raw + sizeof(Memory));
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarp, lane = thread % kWarp;
  const int col_tile = static_cast<int>(blockIdx.x), row_tile = static_cast<int>(blockIdx.y);
  const int first_row = row_tile * Memory::kRows, first_col = col_tile * Memory::kCols;
  const int first_tap = first_col / a.g.inputs;
  const Affine input = Affine::of(a.x);
  const bool needs_error_sums = input.zero != 0 || input.residual != 0;
  for (int i = thread; i < Memory::kRows * Memory::kCols; i += kThreads) shared.sums[i] = 0;
  for (int i = thread; i < Memory::kCols; i += kThreads) shared.input_sums[i] = 0;
  for (int i = thread; i < cut.tile_taps * Memory::kRows; i += kThreads) error_sums[i] = 0;

  const int first_chunk = static_cast<int>(blockIdx.z) * cut.chunks_per_split;
  const int last_chunk = min(first_chunk + cut.chunks_per_split, cut.chunks);
  const int my_pixel = thread % kPixels, my_unit = thread / kPixels;
  uint4 next_input[kInputLoads], next_error[kErrorLoads];
  ColumnStart start[kInputLoads];
#pragma unroll
  for (int i = 0; i < kInputLoads; ++i) start[i].set(a.g, first_col + (my_unit + 2 * i) * 16);
  const auto fetch = [&](int chunk) {
    const int at = chunk * kPixels + my_pixel;
    const OutputPixel pixel(a.g, cut.outputs, at);
#pragma unroll
    for (int i = 0; i < kInputLoads; ++i) {
      const int unit = my_unit + 2 * i;
      if (unit < kInputUnits) next_input[i] = input_columns<kUnit>(a, pixel, start[i]);
    }
#pragma unroll
    for (int i = 0; i < kErrorLoads; ++i) {
      const int unit = my_unit + 2 * i;
      if (unit < kErrorUnits) next_error[i] = error_columns(a, at, first_row + unit * 16);
    }
  };

  float product[kNTiles][4]{};
  InputSums<kNTiles> input_sums;
  const int row_warp = warp % kRowWarps, depth_warp = warp / kRowWarps;
  const auto flush = [&] {
#pragma unroll
    for (int n = 0; n < kNTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = row_warp * 16 + i / 2 * 8 + lane / 4, col = n * 8 + lane % 4 * 2 + i % 2;
        int* to = &shared.sums[row * Memory::kCols + col];
        if (kDepthWarps > 1) {
          atomicAdd(to, static_cast<int>(product[n][i]));
        } else {
          *to += static_cast<int>(product[n][i]);
        }
        product[n][i] = 0;
      }
    }
  };

  fetch(first_chunk);
  int terms = 0;
  for (int chunk = first_chunk; chunk < last_chunk; ++chunk) {
    __syncthreads();  // the chunk before was read; sums are cleared
#pragma unroll
    for (int i = 0; i < kInputLoads; ++i) {
      const int unit = my_unit + 2 * i;
      if (unit >= kInputUnits) continue;
      std::uint8_t* to = shared.input + unit * 2 * Memory::kGroupBytes + my_pixel * kGroup * 2;
      store_halves(next_input[i], to, to + Memory::kGroupBytes);
    }
#pragma unroll
    for (int i = 0; i < kErrorLoads; ++i) {
      const int unit = my_unit + 2 * i;
      if (unit >= kErrorUnits) continue;
      std::uint8_t* to = shared.error + unit * 2 * Memory::kGroupBytes + my_pixel * kGroup * 2;
      store_halves(next_error[i], to, to + Memory::kGroupBytes);
    }
    __syncthreads();
    if (chunk + 1 < last_chunk) fetch(chunk + 1);
    if (needs_error_sums) add_error_sums(a, cut, shared, chunk * kPixels, first_tap, error_sums);
    // Of a transposed load: which group and which half of 16 pixels a lane's row belongs to.
    const int matrix = lane / 8, in_matrix = lane % 8;
#pragma unroll
    for (int k = depth_warp; k < kPixels / 16; k += kDepthWarps) {
      unsigned e[4];
      load_matrices_transposed(shared.error + (row_warp * 2 + matrix % 2) * Memory::kGroupBytes +
                                   (k * 16 + matrix / 2 * 8 + in_matrix) * kGroup * 2,
                               e);
#pragma unroll
      for (int n = 0; n < kNTiles; n += 2) {
        unsigned b[4];
        load_matrices_transposed(shared.input + (n + matrix / 2) * Memory::kGroupBytes +
                                     (k * 16 + matrix % 2 * 8 + in_matrix) * kGroup * 2,
                                 b);
        multiply_halves(product[n], e[0], e[1], e[2], e[3], b[0], b[1]);
        multiply_halves(product[n + 1], e[0], e[1], e[2], e[3], b[2], b[3]);
        if (row_warp == 0) {
          input_sums.add(n, b[0], b[1]);
          input_sums.add(n + 1, b[2], b[3]);
        }
      }
      input_sums.end_step();
    }
    terms += kPixels / kDepthWarps;
    if (terms == kExactTerms) {
      flush();
      terms = 0;
    }
  }
  flush();
  if (row_warp == 0) input_sums.store(shared.input_sums);
  __syncthreads();

  const TileWords words(a.work, row_tile * cut.col_tiles + col_tile, cut.words());
  add_words<kThreads>(words.products, shared.sums, Memory::kRows * Memory::kCols);
  add_words<kThreads>(words.inputs, shared.input_sums, Memory::kCols);
  if (needs_error_sums) add_words<kThreads>(words.errors, error_sums, cut.tile_taps * Memory::kRows);
  if (is_last_block(words.blocks_done, gridDim.z)) write_tile(a, cut, words, row_tile, col_tile);
}

template <int kRowWarps, int kNTiles, int kUnit>
void launch(const WeightGradientArguments& a, const Cut& cut, cudaStream_t stream) {
  const auto kernel = weight_gradient_kernel<kRowWarps, kNTiles, kUnit>;
  const std::size_t bytes = sizeof(Shared<kRowWarps, kNTiles>) +
                            sizeof(int) * static_cast<std::size_t>(cut.tile_taps * 16 * kRowWarps);
  static const cudaError_t raised =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 96 * 1024);
  static_cast<void>(raised);
  const dim3 grid(static_cast<unsigned>(cut.col_tiles), static_cast<unsigned>(cut.row_tiles),
                  static_cast<unsigned>(cut.splits));
  kernel<<<grid, kThreads, bytes, stream>>>(a, cut);
  check_launch("conv_weight_gradient");
}

template <int kRowWarps, int kNTiles>
void launch(const WeightGradientArguments& a, const Cut& cut, cudaStream_t stream) {
  switch (unit_for(a.g.inputs)) {
    case 16:
      return launch<kRowWarps, kNTiles, 16>(a, cut, stream);
    case 8:
      return launch<kRowWarps, kNTiles, 8>(a, cut, stream);
    case 4:
      return launch<kRowWarps, kNTiles, 4>(a, cut, stream);
    default:
      return launch<kRowWarps, kNTiles, 1>(a, cut, stream);
  }
}

template <int kNTiles>
void launch(const WeightGradientArguments& a, const Cut& cut, cudaStream_t stream) {
  if (cut.tile_rows == 16) return launch<1, kNTiles>(a, cut, stream);
  if (cut.tile_rows == 32) return launch<2, kNTiles>(a, cut, stream);
  return launch<4, kNTiles>(a, cut, stream);
}

// Zeroed memory of the kernels above.
std::size_t cut_bytes(const ConvGeometry& g) {
  const Cut cut(g);
  return sizeof(long long) * static_cast<std::size_t>(cut.words().all()) *
         static_cast<std::size_t>(cut.row_tiles * cut.col_tiles);
}

}  // namespace

std::size_t weight_gradient_work_bytes(const ConvGeometry& g) {
  return std::max(is_wide(g) ? wide_weight_gradient_work_bytes(g) : cut_bytes(g),
                  image_weight_gradient_work_bytes(g));
}

std::size_t weight_gradient_product_bytes(const ConvGeometry& g) {
  if (!is_wide(g) || has_image_weight_gradient(g)) return 0;
  const std::size_t wide = wide_weight_gradient_product_bytes(g);
  return wide > 0 ? wide : cut_bytes(g);
}

void conv_weight_gradient(const WeightGradientArguments& a, void* opaque_stream) {
  auto* stream = static_cast<cudaStream_t>(opaque_stream);
  if (has_image_weight_gradient(a.g)) return image_weight_gradients(&a, 1, opaque_stream);
  if (wide_weight_gradient_product_bytes(a.g) > 0) return wide_weight_gradient(a, stream);
  WeightGradientArguments of = a;
  if (is_wide(a.g)) {  // its zeroed memory would do for tiles
    of.work = a.products;
    cudaMemsetAsync(of.work, 0, cut_bytes(a.g), stream);
    check_launch("conv_weight_gradient's zeros");
  }
  const Cut cut(a.g);
  return cut.tile_cols == 64 ? launch<8>(of, cut, stream) : launch<6>(of, cut, stream);
}

}  // namespace lowtide::cuda
