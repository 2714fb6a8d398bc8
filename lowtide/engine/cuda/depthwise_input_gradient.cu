// The gradient at a depthwise convolution's input. The weights' scales do not lie along its sums, which are exact integers as those of
// outputs. In the same pass ReLU's mask is applied, and the sums are taken that the normalisation before needs.
#include "lowtide/engine/cuda/depthwise.cuh"

namespace lowtide::cuda {
namespace {

// What the normalisation before read: the output of its convolution.
struct NormInput {
  Four y;
};

// The gradient that ReLU let pass, for the four channels of a thread.
class MaskedGradient {
 public:
  __device__ MaskedGradient(const NormGradientSums& s, int channel)
      : y_(s.y),
        positive_(s.relu ? s.positive : nullptr),
        relu_(s.relu),
        mean_(Four::load(s.norm.mean + channel, 4, true)),
        factor_(Four::load(s.norm.factor + channel, 4, true)),
        bias_(Four::load(s.norm.bias + channel, 4, true)) {}

  __device__ NormInput fetch(long long at) const { return {Four::load(y_ + at, 4, true)}; }
  __device__ Four of(long long at, const Four& gradient, const NormInput& input) const {
    Four result = gradient;
    if (positive_ != nullptr) {  // signs were kept, because a residual was added
      const unsigned kept = positive_[at / 8] >> (at % 8);
#pragma unroll
      for (int j = 0; j < 4; ++j) result.value[j] = (kept >> j & 1u) != 0 ? result.value[j] : 0.0f;
    } else if (relu_) {
#pragma unroll
      for (int j = 0; j < 4; ++j)
        result.value[j] = mapped(input.y.value[j], mean_.value[j], factor_.value[j], bias_.value[j]) > 0
                              ? result.value[j]
                              : 0.0f;
    }
    return result;
  }
  __device__ const Four& mean() const { return mean_; }

 private:
  const float* y_;
  const std::uint8_t* positive_;
  bool relu_;
  Four mean_, factor_, bias_;
};

class PlainGradient {
 public:
  struct Fetched {};

  __device__ explicit PlainGradient(float* dx) : dx_(dx) {}
  __device__ Fetched fetch(long long) const { return {}; }
  __device__ void take(long long at, const Four& gradient, const Fetched&) const {
    gradient.store(dx_ + at, 4, true);
  }

 private:
  float* dx_;
};

struct GradientSum {
  double sum = 0, product = 0;

  __device__ void add(const GradientSum& of) {
    sum += of.sum;
    product += of.product;
  }
};

class SummedGradient {
 public:
  using Fetched = NormInput;

  __device__ SummedGradient(const InputGradientArguments& a, int channel)
      : dx_(a.dx), masked_(a.sums, channel) {}

  __device__ Fetched fetch(long long at) const { return masked_.fetch(at); }
  __device__ void take(long long at, const Four& gradient, const Fetched& input) {
    const Four g = masked_.of(at, gradient, input);
    g.store(dx_ + at, 4, true);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      sum_[j] += g.value[j];
      product_[j] += g.value[j] * (input.y.value[j] - masked_.mean().value[j]);
    }
  }
  __device__ void finish(const InputGradientArguments& a, const DepthwiseCut& cut,
                         std::uint8_t* memory) const {
    GradientSum mine[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) mine[j] = {static_cast<double>(sum_[j]), static_cast<double>(product_[j])};
    const ChannelWork work(a.sums.work, a.g.inputs);
    join_lanes(cut, mine, memory, [&](int channel, const GradientSum& of) {
      add_gradient_sums(work, static_cast<int>(blockIdx.x) % kCopies, channel, of.sum, of.product);
    });
    if (is_last_block(work.blocks_done, gridDim.x * gridDim.y))
      finish_gradient_sums(a.sums, a.g.inputs, a.g.input_pixels());
  }

 private:
  float* dx_;
  MaskedGradient masked_;
  float sum_[4]{}, product_[4]{};
};

template <typename Steps, bool kSummed>
__global__ void __launch_bounds__(kDepthwiseThreads, 2)
    depthwise_input_gradient_kernel(const __grid_constant__ DepthwiseCut cut,
                                    const __grid_constant__ InputGradientArguments a) {
  extern __shared__ __align__(16) std::uint8_t memory[];
  if constexpr (kSummed) {
    const DepthwiseThread thread(cut);
    SummedGradient epilogue(a, thread.works(cut) ? thread.channel : 0);
    walk_tiles<Steps, true>(cut, a.dy, a.w.depthwise, epilogue, memory);
    epilogue.finish(a, cut, memory);
  } else {
    PlainGradient epilogue(a.dx);
    walk_tiles<Steps, true>(cut, a.dy, a.w.depthwise, epilogue, memory);
  }
}

template <typename Launch>
void with_steps(const ConvGeometry& g, const Launch& launch) {
  if (g.stride_rows == 1) return launch(SingleSteps{});
  launch(HalfSteps{});
}

}  // namespace

void depthwise_input_gradient(const InputGradientArguments& a, void* stream) {
  with_steps(a.g, [&](auto steps) {
    using Steps = decltype(steps);
    const DepthwiseCut cut = depthwise_cut<Steps>(a.g, true);
    const std::size_t bytes = std::max(cut.shared_bytes(), lane_bytes(cut, sizeof(GradientSum)));
    const auto launch = [&](auto summed) {
      launch_depthwise<depthwise_input_gradient_kernel<Steps, summed>>("depthwise_input_gradient", cut, bytes,
                                                                       static_cast<cudaStream_t>(stream), a);
    };
    if (a.sums.work != nullptr) return launch(std::true_type());
    launch(std::false_type());
  });
}

}  // namespace lowtide::cuda
