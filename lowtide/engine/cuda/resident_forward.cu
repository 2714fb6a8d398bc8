// A convolution of images that stay, its normalisation, and the codes of the result, in one kernel.
#include <climits>

#include "lowtide/engine/cuda/resident.cuh"

namespace lowtide::cuda {
namespace {

template <int kChannels>
struct __align__(16) ForwardMemory {
  using Of = Resident<kChannels>;
  using Constants = OutputConstants<kChannels>;

  float mean[kChannels], factor[kChannels], bias[kChannels];  // of the normalisation
  float4 moments[Of::kRowWarps][kChannels];                   // sum, squares, least, greatest; about a pivot
  BlockExtremes ends;

  // After it: the constants of columns, packed weights, what is to be added, the image.
  static std::size_t bytes(const ResidentShape& s, const OutputKinds& kinds, bool adds) {
    return sizeof(ForwardMemory) + Constants::bytes(kinds.count()) + Of::kWeightBytes +
           (adds ? LaneFloats<kChannels>::kBytes : 0) + Of::image_bytes(s);
  }
};

// The convolution: sums of products of codes, turned into values.
template <int kChannels>
__device__ void convolve(const ResidentShape& s, const OutputKinds& kinds, const ResidentLane<kChannels>& at,
                         const std::uint8_t* image, const std::uint8_t* weights,
                         const OutputConstants<kChannels>& constants,
                         LaneRows<Resident<kChannels>::kRows>& y) {
  using Of = Resident<kChannels>;
  int product[Of::kMTiles][2][4]{};
  int window_sum[Of::kMTiles][4]{};  // a product by ones: in every column the same
  for_each_operand<kChannels, false, 0, Of::kMTiles>(
      s, at, image, [&](int step, const unsigned(&pixels)[Of::kMTiles][4]) {
        const uint2 first = weights_at(weights, at, step, 0), second = weights_at(weights, at, step, 1);
        const unsigned second_ones = 32 * step + 16 < 9 * kChannels ? 0x01010101u : 0u;
#pragma unroll
        for (int m = 0; m < Of::kMTiles; ++m) {
          multiply_bytes(window_sum[m], pixels[m], 0x01010101u, second_ones);
          multiply_bytes(product[m][0], pixels[m], first.x, first.y);
          multiply_bytes(product[m][1], pixels[m], second.x, second.y);
        }
      });
  const int4 zero = *reinterpret_cast<const int4*>(constants.zero + at.channel);
  const float4 factor = *reinterpret_cast<const float4*>(constants.factor + at.channel);
  const float4 window = *reinterpret_cast<const float4*>(constants.window + at.channel);
  const bool has_edges = *constants.has_edges != 0;
#pragma unroll
  for (int i = 0; i < Of::kRows; ++i) {
    if (at.tile(i / 2) >= s.tiles) continue;
    const int pixel = at.pixel(i), row = s.by_width.of(pixel);
    const int kind =
        has_edges ? kinds.rows.kind(row) * kinds.cols.count() + kinds.cols.kind(pixel - row * s.width) : 0;
    const int column = kind * kChannels + at.channel, sum = window_sum[i / 2][i % 2 * 2];
    const int4 offset = *reinterpret_cast<const int4*>(constants.offset + column);
    const float4 last = *reinterpret_cast<const float4*>(constants.value + column);
    const float input = static_cast<float>(sum - constants.input[kind]);
    const auto value_of = [&](int of_product, int z, int o, float f, float w, float v) {
      return output_value(of_product - z * sum + o, f, input, w, v);
    };
    const int *left = &product[i / 2][0][i % 2 * 2], *right = &product[i / 2][1][i % 2 * 2];
    y[i][0] = value_of(left[0], zero.x, offset.x, factor.x, window.x, last.x);
    y[i][1] = value_of(left[1], zero.y, offset.y, factor.y, window.y, last.y);
    y[i][2] = value_of(right[0], zero.z, offset.z, factor.z, window.z, last.z);
    y[i][3] = value_of(right[1], zero.w, offset.w, factor.w, window.w, last.w);
  }
}

// Adds what a block found out about its channels to what all find out. Sums are about a pivot, which keeps digits where values lie
// close together far from 0.
template <int kChannels>
__device__ void add_statistics(const NormStatistics& of, const ResidentShape& s,
                               const ResidentLane<kChannels>& at, const OutputConstants<kChannels>& constants,
                               const LaneRows<Resident<kChannels>::kRows>& y,
                               ForwardMemory<kChannels>& memory) {
  using Of = Resident<kChannels>;
  enum Kind { kSum, kSquares, kLow, kHigh, kKinds };
  if (at.row_warp == 0 && at.lane < 4)  // the first pixel's
    *reinterpret_cast<float4*>(constants.pivot + at.channel) =
        make_float4(y[0][0], y[0][1], y[0][2], y[0][3]);
  __syncthreads();
  const float4 pivot = *reinterpret_cast<const float4*>(constants.pivot + at.channel);
  const float about[4] = {pivot.x, pivot.y, pivot.z, pivot.w};
  float moments[4][kKinds];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    moments[j][kSum] = moments[j][kSquares] = 0;
    moments[j][kLow] = INFINITY;
    moments[j][kHigh] = -INFINITY;
#pragma unroll
    for (int i = 0; i < Of::kRows; ++i) {
      if (at.tile(i / 2) >= s.tiles) continue;
      const float distance = y[i][j] - about[j];
      moments[j][kSum] += distance;
      moments[j][kSquares] += distance * distance;
      moments[j][kLow] = fminf(moments[j][kLow], y[i][j]);
      moments[j][kHigh] = fmaxf(moments[j][kHigh], y[i][j]);
    }
  }
  float joined[kKinds];
  join_rows(moments, joined, [](int kind, float a, float b) {
    return kind == kLow ? fminf(a, b) : kind == kHigh ? fmaxf(a, b) : a + b;
  });
  if (at.lane % 8 < 4)
    memory.moments[at.row_warp][joined_channel(at)] =
        make_float4(joined[kSum], joined[kSquares], joined[kLow], joined[kHigh]);
  __syncthreads();
  const int channel = static_cast<int>(threadIdx.x);
  if (channel >= kChannels) return;
  double sum = 0, squares = 0;
  float low = INFINITY, high = -INFINITY;
#pragma unroll
  for (int i = 0; i < Of::kRowWarps; ++i) {
    const float4 part = memory.moments[i][channel];
    sum += static_cast<double>(part.x);
    squares += static_cast<double>(part.y);
    low = fminf(low, part.z);
    high = fmaxf(high, part.w);
  }
  const double p = static_cast<double>(constants.pivot[channel]), n = s.height * s.width;
  add_moments(ChannelWork(of.work, kChannels), channel,
              {n * p + sum, squares + 2 * p * sum + n * p * p, low, high});
}

template <int kChannels>
__device__ void store_codes(const ResidentShape& s, const ResidentLane<kChannels>& at, const Encoder& encoder,
                            const LaneRows<Resident<kChannels>::kRows>& z, std::uint8_t* code) {
#pragma unroll
  for (int i = 0; i < Resident<kChannels>::kRows; ++i) {
    if (at.tile(i / 2) >= s.tiles) continue;
    *reinterpret_cast<unsigned*>(code + at.element(s, i)) =
        encoder.four_codes(z[i][0], z[i][1], z[i][2], z[i][3]);
  }
}

// normalisation + residual, then ReLU: in place of y. Its signs, its floats, its range, and its codes for the next reader.
template <int kChannels>
__device__ void add_residual(const ResidentForwardArguments& a, const ResidentShape& s,
                             const ResidentLane<kChannels>& at, const LaneFloats<kChannels>& residual,
                             ForwardMemory<kChannels>& memory, LaneRows<Resident<kChannels>::kRows>& y) {
  const bool adds = a.add.residual != nullptr;
  Extent extent;
#pragma unroll
  for (int i = 0; i < Resident<kChannels>::kRows; ++i) {
    if (at.tile(i / 2) >= s.tiles) continue;
    const float4 four = adds ? residual.row(i) : make_float4(0, 0, 0, 0);
    const float added[4] = {four.x, four.y, four.z, four.w};
    unsigned signs = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int c = at.channel + j;
      float v = mapped(y[i][j], memory.mean[c], memory.factor[c], memory.bias[c]);
      if (adds) v = __fadd_rn(v, added[j]);
      if (v > 0.0f) signs |= 1u << j;
      extent.poisoned |= !isfinite(v);  // ReLU hides minus infinity
      if (a.add.relu && v < 0.0f) v = 0.0f;
      extent.include(v);
      y[i][j] = v;
    }
    const int element = at.element(s, i);
    *reinterpret_cast<float4*>(a.add.value + element) = make_float4(y[i][0], y[i][1], y[i][2], y[i][3]);
    signs |= __shfl_xor_sync(0xffffffffu, signs, 1) << 4;  // a byte is of two lanes
    if (a.add.positive != nullptr && at.lane % 2 == 0)
      a.add.positive[element / 8] = static_cast<std::uint8_t>(signs);
  }
  const ExtremesWork work(a.add.work);
  if (a.reader.code == nullptr) return work.join(extent, a.add.min, a.add.range);
  const BlockExtremes block = extent.join();
  if (threadIdx.x == 0) work.include(block);
  const GridBarrier barrier{work.blocks_done()};
  barrier.arrive();
  barrier.wait();
  const Encoder encoder =
      encoder_of_all(work, a.reader.bits, {a.add.min, a.add.range, a.reader.scale}, memory.ends);
  store_codes(s, at, encoder, y, a.reader.code);
}

template <int kChannels>
__global__ void __launch_bounds__(Resident<kChannels>::kThreads, 1)
    resident_forward_kernel(const __grid_constant__ ResidentForwardArguments a,
                            const __grid_constant__ ResidentShape s,
                            const __grid_constant__ OutputKinds kinds) {
  using Of = Resident<kChannels>;
  using Memory = ForwardMemory<kChannels>;
  extern __shared__ __align__(16) std::uint8_t raw[];
  auto& memory = *reinterpret_cast<Memory*>(raw);
  const typename Memory::Constants constants(raw + sizeof(Memory), kinds.count());
  std::uint8_t* weights = raw + sizeof(Memory) + Memory::Constants::bytes(kinds.count());
  const bool adds = a.add.residual != nullptr;
  const LaneFloats<kChannels> residual(weights + Of::kWeightBytes);
  std::uint8_t* image = weights + Of::kWeightBytes + (adds ? LaneFloats<kChannels>::kBytes : 0);
  const ResidentLane<kChannels> at;
  const NormStatistics& statistics = a.output.statistics;

  load_image<kChannels>(s, a.output.x.code, image);
  load_bytes<Of::kThreads>(a.output.w.forward, weights, Of::kWeightBytes);
  commit_copies();
  if (adds) residual.load(s, at, a.add.residual);
  commit_copies();
  fill_border<kChannels>(s, 0, image);
  constants.fill(a.output, kinds, 0);
  wait_for_copies<1>();
  __syncthreads();
  LaneRows<Of::kRows> y{};
  convolve(s, kinds, at, image, weights, constants, y);
  if (statistics.work != nullptr) add_statistics(statistics, s, at, constants, y, memory);
  const GridBarrier barrier{ChannelWork(statistics.work, kChannels).blocks_done};
  if (statistics.work != nullptr) barrier.arrive();
  if (a.output.y != nullptr) {
#pragma unroll
    for (int i = 0; i < Of::kRows; ++i) {
      if (at.tile(i / 2) < s.tiles)
        *reinterpret_cast<float4*>(a.output.y + at.element(s, i)) =
            make_float4(y[i][0], y[i][1], y[i][2], y[i][3]);
    }
  }
  if (statistics.work != nullptr) barrier.wait();

  const int thread = static_cast<int>(threadIdx.x);
  Extent extent;
  if (thread < kChannels) {
    const double count = static_cast<double>(s.images) * (s.height * s.width);
    const ChannelNorm norm = channel_norm(statistics, thread, kChannels, count, blockIdx.x == 0);
    memory.mean[thread] = norm.mean;
    memory.factor[thread] = norm.factor;
    memory.bias[thread] = norm.bias;
    if (blockIdx.x == 0) store_norm(statistics.out, thread, norm);
    extent.include(norm);
  }
  const BlockExtremes ends = extent.join();  // and all constants are there
  float min = 0, range = 0;
  if (statistics.work != nullptr) {
    store_range(ends.low, ends.high, &min, &range);
    if (blockIdx.x == 0 && thread == 0) {
      *statistics.out.min = min;
      *statistics.out.range = range;
    }
  }
  wait_for_copies<0>();
  if (a.add.value != nullptr) return add_residual(a, s, at, residual, memory, y);
  if (a.encode.min != nullptr) {
    min = *a.encode.min;
    range = *a.encode.range;
  }
  const Encoder encoder = Encoder::make(min, range, a.encode.bits.top());
  if (blockIdx.x == 0 && thread == 0) *a.encode.scale = encoder.scale;
#pragma unroll
  for (int i = 0; i < Of::kRows; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int c = at.channel + j;
      const float z = mapped(y[i][j], memory.mean[c], memory.factor[c], memory.bias[c]);
      y[i][j] = a.encode.relu && z < 0.0f ? 0.0f : z;
    }
  }
  store_codes(s, at, encoder, y, a.encode.code);
}

template <int kChannels>
void launch(const ResidentForwardArguments& a, cudaStream_t stream) {
  const ResidentShape shape(a.output.g);
  const OutputKinds kinds = kinds_of(a.output.g);
  const bool waits = a.output.statistics.work != nullptr || a.reader.code != nullptr;
  launch_resident<resident_forward_kernel<kChannels>>(
      "resident_forward", a.output.g.images, Resident<kChannels>::kThreads,
      ForwardMemory<kChannels>::bytes(shape, kinds, a.add.residual != nullptr), waits, stream, a, shape,
      kinds);
}

}  // namespace

void resident_forward(const ResidentForwardArguments& a, void* opaque_stream) {
  auto* stream = static_cast<cudaStream_t>(opaque_stream);
  with_channels(a.output.g.inputs, [&](auto channels) { launch<channels>(a, stream); });
}

bool stays_resident(const ConvGeometry& g, bool waits) {
  int device = 0, multiprocessors = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  const long long pixels = static_cast<long long>(g.height) * g.width;
  return !g.depthwise && may_stay(g.outputs, g.kernel_rows, g.kernel_cols, g.inputs) && g.stride_rows == 1 &&
         g.stride_cols == 1 && g.pad_rows == 1 && g.pad_cols == 1 && g.height >= 3 && g.width >= 3 &&
         pixels % 16 == 0 && pixels <= most_resident_pixels(g.inputs) && g.images > 0 &&
         g.images * pixels * g.inputs <= INT_MAX &&  // elements are numbered by an int
         (!waits || g.images <= multiprocessors) && kMostSharedBytes <= most_shared_bytes();
}

}  // namespace lowtide::cuda
