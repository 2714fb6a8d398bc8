// A convolution of codes: bytes on tensor cores, sums of 32-bit integers, and in the same pass the statistics of channels
// that the normalisation after it needs.
#include <algorithm>

#include "lowtide/engine/cuda/gather.cuh"
#include "lowtide/engine/cuda/output_values.cuh"
#include "lowtide/engine/cuda/statistics.cuh"
#include "lowtide/engine/cuda/tiles.cuh"

namespace lowtide::cuda {
namespace {

constexpr int kStages = 3;  // chunks in shared memory: two are on their way

// Adds what a block found out about its columns; the last one of all makes the normalisation's constants of it.
template <int kColumns, int kChannels>
__device__ void add_statistics(const OutputArguments& a, const LaneStatistics<kChannels>& statistics,
                               const float* pivot, int first_channel, int first_column, void* memory) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp,
            row_warp = thread / kWarp % kRowWarps;
  auto(*moments)[kColumns] = static_cast<WarpMoments(*)[kColumns]>(memory);
  int rows = statistics.rows;
#pragma unroll
  for (int step = 4; step < kWarp; step *= 2) rows += __shfl_xor_sync(0xffffffffu, rows, step);
#pragma unroll
  for (int i = 0; i < kChannels; ++i) {
    const int column = first_column + i / 4 * 16 + i % 4;
    const WarpMoments of = join_lanes(statistics, i, rows, static_cast<double>(pivot[column]));
    if (lane < 4) moments[row_warp][column] = of;
  }
  __syncthreads();
  const ChannelWork work(a.statistics.work, a.g.outputs);
  if (thread < kColumns && first_channel + thread < a.g.outputs) {
    WarpMoments all = moments[0][thread];
    for (int i = 1; i < kRowWarps; ++i) {
      const WarpMoments& of = moments[i][thread];
      all.sum += of.sum;
      all.squares += of.squares;
      all.low = fminf(all.low, of.low);
      all.high = fmaxf(all.high, of.high);
    }
    add_moments(work, first_channel + thread, all);
  }
  if (is_last_block(work.blocks_done, gridDim.x * gridDim.y))
    finish_statistics(a.statistics, a.g.outputs, a.g.output_pixels());
}

template <typename Rows, int kNTiles, int kColWarps>
struct Block {
  static constexpr int kThreads = kWarp * kRowWarps * kColWarps, kColumns = 8 * kNTiles * kColWarps;
  using Constants = OutputConstants<kColumns>;
  using Stages = ProductStages<Rows, kThreads, kStages, kColumns * 32, false>;
};

template <typename Rows, int kMTiles, int kNTiles, int kColWarps>
__global__ void __launch_bounds__(kWarp* kRowWarps* kColWarps, (kResidentBlocks<kNTiles, kColWarps>))
    output_kernel(const __grid_constant__ OutputArguments a,
                  const __grid_constant__ typename Rows::Shape shape,
                  const __grid_constant__ OutputKinds kinds, int weight_bytes) {
  using Of = Block<Rows, kNTiles, kColWarps>;
  extern __shared__ __align__(16) std::uint8_t memory[];
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarp, lane = thread % kWarp;
  const int row_warp = warp % kRowWarps, col_warp = warp / kRowWarps;
  const int first_channel = static_cast<int>(blockIdx.y) * Of::kColumns;
  const typename Of::Constants constants(memory, kinds.count());
  std::uint8_t* stage_memory = memory + Of::Constants::bytes(kinds.count());
  const typename Of::Stages stages(shape, stage_memory, weight_bytes, a.w.forward,
                                   round_up(a.g.outputs, forward_columns(a.g.outputs)) * 32);
  Rows rows(shape);

  int product[kMTiles][kNTiles][4]{};
  int window_sum[kMTiles][4]{};  // a product by ones: in every column the same
  LaneStatistics<2 * kNTiles> statistics;
  const bool takes_statistics = a.statistics.work != nullptr;
  const int first_column = col_warp * 8 * kNTiles + lane % 4 * 4;

  struct Columns {  // four neighbours' constants
    int4 zero;
    float4 factor, window;
  };
  const auto columns_at = [&](int column) {
    return Columns{*reinterpret_cast<const int4*>(constants.zero + column),
                   *reinterpret_cast<const float4*>(constants.factor + column),
                   *reinterpret_cast<const float4*>(constants.window + column)};
  };
  // Σ (qx - zx)(qw - zw) = Σ qx qw - zw Σ qx - zx Σ (qw - zw), of row i of the lane and columns 4 p.
  const auto values_at = [&](int i, int p, int kind, const Columns& of) {
    const int column = kind * Of::kColumns + first_column + p * 16, sum = window_sum[i / 2][i % 2 * 2];
    const int4 offset = *reinterpret_cast<const int4*>(constants.offset + column);
    const float4 last = *reinterpret_cast<const float4*>(constants.value + column);
    const float input = static_cast<float>(sum - constants.input[kind]);
    const auto value_of = [&](int of_product, int z, int o, float f, float w, float v) {
      return output_value(of_product - z * sum + o, f, input, w, v);
    };
    const int *first = &product[i / 2][2 * p][i % 2 * 2], *second = &product[i / 2][2 * p + 1][i % 2 * 2];
    return Four{{value_of(first[0], of.zero.x, offset.x, of.factor.x, of.window.x, last.x),
                 value_of(first[1], of.zero.y, offset.y, of.factor.y, of.window.y, last.y),
                 value_of(second[0], of.zero.z, offset.z, of.factor.z, of.window.z, last.z),
                 value_of(second[1], of.zero.w, offset.w, of.factor.w, of.window.w, last.w)}};
  };
  const auto kind_of = [&](const typename Rows::Results& results, int i) {
    return *constants.has_edges != 0
               ? kinds.rows.kind(results.row(i)) * kinds.cols.count() + kinds.cols.kind(results.col(i))
               : 0;
  };
  // The first row of the block's first tile.
  const auto set_pivots = [&](int tile) {
    if (row_warp == 0 && lane < 4) {
      const int kind = kind_of(typename Rows::Results(rows, tile), 0);
#pragma unroll
      for (int p = 0; p < kNTiles / 2; ++p) {
        const int column = first_column + p * 16;
        values_at(0, p, kind, columns_at(column)).store(constants.pivot + column, 4, true);
      }
    }
    __syncthreads();
  };
  const auto finish_tile = [&](int tile) {
    const typename Rows::Results results(rows, tile);
    int number[2 * kMTiles], kind[2 * kMTiles];
#pragma unroll
    for (int i = 0; i < 2 * kMTiles; ++i) {
      number[i] = results.number(i);
      kind[i] = kind_of(results, i);
      statistics.rows += number[i] >= 0 ? 1 : 0;
    }
#pragma unroll
    for (int p = 0; p < kNTiles / 2; ++p) {
      const int column = first_column + p * 16, channel = first_channel + column;
      const Columns of = columns_at(column);
      const Four pivot = Four::load(constants.pivot + column, 4, true);
#pragma unroll
      for (int i = 0; i < 2 * kMTiles; ++i) {
        if (number[i] < 0) continue;
        const Four values = values_at(i, p, kind[i], of);
        values.store(a.y + static_cast<long long>(number[i]) * a.g.outputs + channel, a.g.outputs - channel,
                     Rows::kAligned);
        if (!takes_statistics) continue;
#pragma unroll
        for (int j = 0; j < 4; ++j) statistics.add(4 * p + j, values.value[j], pivot.value[j]);
      }
    }
  };

  const auto load = [&](int item) { stages.load(rows, item, 0); };
  const auto prepare = [&] { constants.fill(a, kinds, first_channel); };
  for_each_item<kStages>(stages.items(), load, prepare, [&](int item) {
    const typename Rows::Chunk of(rows, stages.tile(item), stages.chunk(item));
    const std::uint8_t* from = stages.pixels(item);
    const auto* b = reinterpret_cast<const uint2*>(stages.weights(item)) + col_warp * kNTiles * kWarp + lane;
    const int units = of.units();
    for (int pair = 0; 2 * pair < units; ++pair) {
      uint2 columns[kNTiles];
#pragma unroll
      for (int n = 0; n < kNTiles; ++n) columns[n] = b[(pair * kNTiles * kColWarps + n) * kWarp];
      const unsigned second_ones = 2 * pair + 1 < units ? 0x01010101u : 0u;  // there may be no second unit
      const int offset = of.offset(pair);
#pragma unroll
      for (int m = 0; m < kMTiles; ++m) {
        unsigned pixels[4];
        load_matrices(from + rows.place(m) + offset, pixels);
        multiply_bytes(window_sum[m], pixels, 0x01010101u, second_ones);
#pragma unroll
        for (int n = 0; n < kNTiles; ++n) multiply_bytes(product[m][n], pixels, columns[n].x, columns[n].y);
      }
    }
    if (!stages.ends_tile(item)) return;
    if (takes_statistics && item + 1 == shape.chunks) set_pivots(stages.tile(item));
    finish_tile(stages.tile(item));
#pragma unroll
    for (int m = 0; m < kMTiles; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        window_sum[m][i] = 0;
#pragma unroll
        for (int n = 0; n < kNTiles; ++n) product[m][n][i] = 0;
      }
    }
  });

  if (takes_statistics) {
    add_statistics<Of::kColumns>(a, statistics, constants.pivot, first_channel, first_column, stage_memory);
  } else if (a.statistics.out.mean != nullptr && blockIdx.x == 0 && blockIdx.y == 0) {
    finish_statistics(a.statistics, a.g.outputs, a.g.output_pixels());
  }
}

template <typename Rows, int kNTiles, int kColWarps>
std::size_t block_bytes(const OutputKinds& kinds, const typename Rows::Shape& shape, int units) {
  using Of = Block<Rows, kNTiles, kColWarps>;
  return Of::Constants::bytes(kinds.count()) +
         std::max(Of::Stages::bytes(shape, units), sizeof(WarpMoments) * kRowWarps * Of::kColumns);
}

template <typename Rows, int kMTiles, int kNTiles, int kColWarps>
void launch(const OutputArguments& a, const typename Rows::Shape& shape, int units, cudaStream_t stream) {
  using Of = Block<Rows, kNTiles, kColWarps>;
  const OutputKinds kinds = kinds_of(a.g);
  const int column_blocks = divide_up(a.g.outputs, Of::kColumns);
  const dim3 grid(
      static_cast<unsigned>(row_blocks(shape.tiles, column_blocks, kResidentBlocks<kNTiles, kColWarps>)),
      static_cast<unsigned>(column_blocks));
  const std::size_t bytes = block_bytes<Rows, kNTiles, kColWarps>(kinds, shape, units);
  launch_kernel<output_kernel<Rows, kMTiles, kNTiles, kColWarps>>("conv_output", grid, Of::kThreads, bytes,
                                                                  stream, a, shape, kinds,
                                                                  Of::Stages::weight_bytes(shape, units));
}

// None where this GPU's blocks have no room for one.
int row_tiles(const ConvGeometry& g, const ProductCut& cut) {
  if (g.outputs % 4 != 0) return 0;
  const PixelTiles tiles = output_tiles(g, nullptr, cut.m_tiles);
  std::size_t bytes = 0;
  with_cut<32>(cut, [&](auto m_tiles, auto n_tiles, auto col_warps) {
    using Rows = TileRows<kWarp * kRowWarps * col_warps, m_tiles, kUnitBytes, false>;
    bytes = block_bytes<Rows, n_tiles, col_warps>(kinds_of(g), tiles, tiles.phase[0].units);
  });
  return bytes <= most_shared_bytes() ? tiles.tiles : 0;
}

template <int kUnit>
void launch_tiles(const OutputArguments& a, const ProductCut& cut, cudaStream_t stream) {
  PixelTiles tiles = output_tiles(a.g, a.x.code, cut.m_tiles);
  with_cut<32>(cut, [&](auto m_tiles, auto n_tiles, auto col_warps) {
    constexpr int kMTiles = m_tiles, kNTiles = n_tiles, kColWarps = col_warps,
                  kThreads = kWarp * kRowWarps * kColWarps;
    tiles.set_threads(kThreads);
    launch<TileRows<kThreads, kMTiles, kUnit, false>, kMTiles, kNTiles, kColWarps>(
        a, tiles, tiles.phase[0].units, stream);
  });
}

template <int kUnit>
void launch_gather(const OutputArguments& a, cudaStream_t stream) {
  const GatherShape shape = gather_shape(a.g, a.x.code, false);
  const ProductCut cut(a.g.outputs,
                       [&](const ProductCut& option) { return option.m_tiles == 1 ? shape.tiles : 0; });
  with_columns<64>(cut, [&](auto n_tiles, auto col_warps) {
    constexpr int kNTiles = n_tiles, kColWarps = col_warps;
    launch<GatherRows<kWarp * kRowWarps * kColWarps, 1, kUnit, false>, 1, kNTiles, kColWarps>(
        a, shape, kChunk / kUnitBytes, stream);
  });
}

}  // namespace

void conv_output(const OutputArguments& a, void* opaque_stream) {
  auto* stream = static_cast<cudaStream_t>(opaque_stream);
  const ProductCut cut(a.g.outputs, [&](const ProductCut& option) { return row_tiles(a.g, option); });
  const int unit = unit_for(a.g.inputs);
  if (cut.exists()) return unit == 16 ? launch_tiles<16>(a, cut, stream) : launch_tiles<8>(a, cut, stream);
  if (unit == 16) return launch_gather<16>(a, stream);
  return unit >= 4 ? launch_gather<4>(a, stream) : launch_gather<1>(a, stream);
}

}  // namespace lowtide::cuda
