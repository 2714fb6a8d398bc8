#include "lowtide/nn/tensor_norm.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "lowtide/base/cuda_stream.h"
#include "lowtide/base/simd.h"
#include "lowtide/base/torch.h"
#include "lowtide/nn/tensor_norm_kernels.h"

namespace lowtide {
namespace {

constexpr double kEpsilon = 1e-5;
// As the quantiser cuts its work.
constexpr std::int64_t kNormChunk = 4096;
constexpr std::int64_t kNormChunksPerThread = 16;

// Numbers are summed in lanes of float within a chunk, 64 a lane, and in double from there on.
constexpr int kLanes = 64;
struct Lanes {
  std::array<float, kLanes> plain{}, product{};
};

// Σ x and Σ (x - a)(y - b).
struct Sums {
  double plain = 0, product = 0;
};

LOWTIDE_SIMD void sum_chunk(const float* x, const float* y, float a, float b, std::int64_t n, Lanes& sums) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      sums.plain[lane] += x[i + lane];
      sums.product[lane] += (x[i + lane] - a) * (y[i + lane] - b);
    }
  }
  for (int lane = 0; i + lane < n; ++lane) {
    sums.plain[lane] += x[i + lane];
    sums.product[lane] += (x[i + lane] - a) * (y[i + lane] - b);
  }
}

Sums sums_on_cpu(const at::Tensor& x, const at::Tensor& y, float a, float b) {
  const std::int64_t n = x.numel(), chunks = (n + kNormChunk - 1) / kNormChunk;
  std::vector<Sums> parts(static_cast<std::size_t>(chunks));
  const float *left = x.data_ptr<float>(), *right = y.data_ptr<float>();
  at::parallel_for(0, chunks, kNormChunksPerThread, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t c = first; c < last; ++c) {
      Lanes lanes;
      const std::int64_t begin = c * kNormChunk;
      sum_chunk(left + begin, right + begin, a, b, std::min(kNormChunk, n - begin), lanes);
      parts[static_cast<std::size_t>(c)] = {std::accumulate(lanes.plain.begin(), lanes.plain.end(), 0.0),
                                            std::accumulate(lanes.product.begin(), lanes.product.end(), 0.0)};
    }
  });
  Sums all;
  for (const Sums& part : parts) {
    all.plain += part.plain;
    all.product += part.product;
  }
  return all;
}

// Means of x and of (x - a)(y - b).
struct Means {
  at::Tensor plain, product;
};
Means means(const at::Tensor& x, const at::Tensor& y, const at::Tensor& a, const at::Tensor& b) {
  const Sums sums = sums_on_cpu(x, y, a.item<float>(), b.item<float>());
  const auto count = static_cast<double>(x.numel());
  return {at::full({}, sums.plain / count, x.options()), at::full({}, sums.product / count, x.options())};
}

LOWTIDE_SIMD void normalise_chunk(const float* x, float mean, float factor, std::int64_t n, float* y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * factor;
}

at::Tensor normalised(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& factor) {
  at::Tensor y = at::empty_like(x);
  const float m = mean.item<float>(), f = factor.item<float>();
  at::parallel_for(
      0, x.numel(), kNormChunk * kNormChunksPerThread, [&](std::int64_t begin, std::int64_t end) {
        normalise_chunk(x.data_ptr<float>() + begin, m, f, end - begin, y.data_ptr<float>() + begin);
      });
  return y;
}

// With z = (x - mean)·f:  dx = f (g - mean(g) - z mean(g·z)) = f ((x - mean) slope + g - mean(g)).
struct Backward {
  float mean, slope, gradient_mean, factor;
};

LOWTIDE_SIMD void gradient_chunk(const float* x, const float* g, const Backward& b, std::int64_t n,
                                 float* dx) {
  for (std::int64_t i = 0; i < n; ++i)
    dx[i] = ((x[i] - b.mean) * b.slope + g[i] - b.gradient_mean) * b.factor;
}

at::Tensor gradient(const at::Tensor& x, const at::Tensor& g, const at::Tensor& mean,
                    const at::Tensor& factor) {
  const Means m = means(g, x, at::zeros_like(mean), mean);
  const at::Tensor slope = -m.product * factor * factor;
  at::Tensor dx = at::empty_like(x);
  const Backward b{.mean = mean.item<float>(),
                   .slope = slope.item<float>(),
                   .gradient_mean = m.plain.item<float>(),
                   .factor = factor.item<float>()};
  at::parallel_for(0, x.numel(), kNormChunk * kNormChunksPerThread,
                   [&](std::int64_t begin, std::int64_t end) {
                     gradient_chunk(x.data_ptr<float>() + begin, g.data_ptr<float>() + begin, b, end - begin,
                                    dx.data_ptr<float>() + begin);
                   });
  return dx;
}

class TensorNormFunction : public torch::autograd::Function<TensorNormFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input) {
    const at::Tensor x = input.contiguous();
    const at::Tensor zero = at::zeros({}, x.options());
    const at::Tensor mean = means(x, x, zero, zero).plain;
    const at::Tensor variance = means(x, x, mean, mean).product;
    const at::Tensor factor = (variance + kEpsilon).rsqrt();
    context->save_for_backward({x, mean, factor});
    return normalised(x, mean, factor);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    return {gradient(saved[0], gradients[0].contiguous(), saved[1], saved[2])};
  }
};

#if defined(LOWTIDE_WITH_CUDA)
struct NormCall : torch::CustomClassHolder {
  bool relu = false;
  DropoutNoise dropout;
};

// The same on a GPU, with ReLU before and dropout after it, whose masks are drawn anew on the way back.
class GpuNormFunction : public torch::autograd::Function<GpuNormFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const c10::intrusive_ptr<NormCall>& call) {
    const at::Tensor x = in_fours(input), mean = at::empty({1}, x.options()),
                     factor = at::empty({1}, x.options());
    const at::Tensor work = work_for(x);
    const NormedTensor of = normed(x, *call);
    tensor_statistics_on_gpu({.of = of,
                              .epsilon = kEpsilon,
                              .work = work.data_ptr<double>(),
                              .mean = mean.data_ptr<float>(),
                              .factor = factor.data_ptr<float>()},
                             current_cuda_stream());
    at::Tensor y = at::empty_like(x);
    normalise_on_gpu({.of = of,
                      .mean = mean.data_ptr<float>(),
                      .factor = factor.data_ptr<float>(),
                      .y = y.data_ptr<float>()},
                     current_cuda_stream());
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    context->save_for_backward({x, mean, factor});
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto call = c10::static_intrusive_pointer_cast<NormCall>(context->saved_data["call"].toCapsule());
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], gradient = in_fours(gradients[0]), work = work_for(x),
                     means = at::empty({2}, x.options());
    at::Tensor dx = at::empty_like(x);
    NormaliseGradientArguments a;
    a.of = normed(x, *call);
    a.gradient = gradient.data_ptr<float>();
    a.mean = saved[1].data_ptr<float>();
    a.factor = saved[2].data_ptr<float>();
    a.work = work.data_ptr<double>();
    a.means = means.data_ptr<float>();
    a.dx = dx.data_ptr<float>();
    normalise_gradient_on_gpu(a, current_cuda_stream());
    return {dx, {}};
  }

 private:
  static NormedTensor normed(const at::Tensor& x, const NormCall& call) {
    return {x.data_ptr<float>(), x.numel(), call.relu, call.dropout};
  }
  static at::Tensor work_for(const at::Tensor& x) {
    return at::empty({kTensorMeansWork}, x.options().dtype(at::kDouble));
  }
  // Kernels read four numbers at a time.
  static at::Tensor in_fours(const at::Tensor& given) {
    const at::Tensor x = given.contiguous();
    return reinterpret_cast<std::uintptr_t>(x.data_ptr()) % (4 * sizeof(float)) == 0 ? x : x.clone();
  }
};
#endif

}  // namespace

at::Tensor tensor_norm(const at::Tensor& x) {
#if defined(LOWTIDE_WITH_CUDA)
  if (x.is_cuda()) return GpuNormFunction::apply(x, c10::make_intrusive<NormCall>());
#endif
  return TensorNormFunction::apply(x);
}

at::Tensor relu_norm_dropout(const at::Tensor& x, const Dropout& dropout) {
#if defined(LOWTIDE_WITH_CUDA)
  if (x.is_cuda()) {
    const auto call = c10::make_intrusive<NormCall>();
    call->relu = true;
    call->dropout = dropout->draw();
    return GpuNormFunction::apply(x, call);
  }
#endif
  return dropout->forward(tensor_norm(at::relu(x)));
}

}  // namespace lowtide
