// A depthwise convolution of codes, and in the same pass the statistics of channels that the normalisation after it needs.
#include "lowtide/engine/cuda/depthwise.cuh"
#include "lowtide/engine/cuda/output_values.cuh"

namespace lowtide::cuda {
namespace {

struct NothingFetched {};

// Of one channel.
struct Moments {
  double sum = 0, squares = 0;
  float low = INFINITY, high = -INFINITY;

  __device__ void add(const Moments& of) {
    sum += of.sum;
    squares += of.squares;
    low = fminf(low, of.low);
    high = fmaxf(high, of.high);
  }
};

// Stores values, and takes their statistics about the first of each thread.
class OutputEpilogue {
 public:
  using Fetched = NothingFetched;

  __device__ explicit OutputEpilogue(const OutputArguments& a)
      : y_(a.y), takes_statistics_(a.statistics.work != nullptr) {}

  __device__ Fetched fetch(long long) const { return {}; }
  __device__ void take(long long at, const Four& values, const Fetched&) {
    values.store(y_ + at, 4, true);
    if (!takes_statistics_) return;
    if (statistics_.rows++ == 0) pivot_ = values;
#pragma unroll
    for (int j = 0; j < 4; ++j) statistics_.add(j, values.value[j], pivot_.value[j]);
  }
  __device__ void finish(const OutputArguments& a, const DepthwiseCut& cut, std::uint8_t* memory) const {
    if (!takes_statistics_) {
      if (a.statistics.out.mean != nullptr && blockIdx.x == 0 && blockIdx.y == 0)
        finish_statistics(a.statistics, a.g.outputs, a.g.output_pixels());
      return;
    }
    Moments mine[4];
    const double n = statistics_.rows;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const double p = static_cast<double>(pivot_.value[j]), s = static_cast<double>(statistics_.sum[j]);
      mine[j].sum = n * p + s;
      mine[j].squares = static_cast<double>(statistics_.squares[j]) + 2 * p * s + n * p * p;
      mine[j].low = statistics_.low[j];
      mine[j].high = statistics_.high[j];
    }
    const ChannelWork work(a.statistics.work, a.g.outputs);
    join_lanes(cut, mine, memory, [&](int channel, const Moments& of) {
      add_moments(work, channel, {.sum = of.sum, .squares = of.squares, .low = of.low, .high = of.high});
    });
    if (is_last_block(work.blocks_done, gridDim.x * gridDim.y))
      finish_statistics(a.statistics, a.g.outputs, a.g.output_pixels());
  }

 private:
  float* y_;
  bool takes_statistics_;
  LaneStatistics<4> statistics_;
  Four pivot_{};
};

template <typename Steps>
__global__ void __launch_bounds__(kDepthwiseThreads, 2)
    depthwise_output_kernel(const __grid_constant__ DepthwiseCut cut,
                            const __grid_constant__ OutputArguments a) {
  extern __shared__ __align__(16) std::uint8_t memory[];
  OutputEpilogue epilogue(a);
  walk_tiles<Steps, false>(cut, a.x, a.w.depthwise, epilogue, memory);
  epilogue.finish(a, cut, memory);
}

template <typename Launch>
void with_steps(const ConvGeometry& g, const Launch& launch) {
  if (g.stride_rows == 1) return launch(SingleSteps{});
  launch(DoubleSteps{});
}

}  // namespace

void depthwise_output(const OutputArguments& a, void* stream) {
  with_steps(a.g, [&](auto steps) {
    using Steps = decltype(steps);
    const DepthwiseCut cut = depthwise_cut<Steps>(a.g, false);
    launch_depthwise<depthwise_output_kernel<Steps>>(
        "depthwise_output", cut, std::max(cut.shared_bytes(), lane_bytes(cut, sizeof(Moments))),
        static_cast<cudaStream_t>(stream), a);
  });
}

}  // namespace lowtide::cuda
