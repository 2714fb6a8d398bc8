#include <algorithm>
#include <cmath>
#include <cstdint>

#include "lowtide/base/parallel.h"
#include "lowtide/base/simd.h"
#include "lowtide/train/update.h"
#include "lowtide/train/update_layout.h"

namespace lowtide::cpu {
namespace {

LOWTIDE_SIMD void sgd(std::int64_t n, float* __restrict parameter, const float* __restrict gradient,
                      float* __restrict velocity, float rate, float momentum, float decay) {
  for (std::int64_t i = 0; i < n; ++i) {
    velocity[i] = momentum * velocity[i] + gradient[i] + decay * parameter[i];
    parameter[i] -= rate * velocity[i];
  }
}

struct AdamFactors {
  float rate, keep1, take1, keep2, take2, correction2, epsilon, decay, shrinkage;
};

LOWTIDE_SIMD void adam(std::int64_t n, float* __restrict parameter, const float* __restrict gradient,
                       float* __restrict first, float* __restrict second, const AdamFactors& by) {
  const AdamFactors f = by;
  for (std::int64_t i = 0; i < n; ++i) {
    const float g = gradient[i] + f.decay * parameter[i];
    const float kept = parameter[i] - f.shrinkage * parameter[i];
    first[i] = f.keep1 * first[i] + f.take1 * g;
    second[i] = f.keep2 * second[i] + f.take2 * g * g;
    parameter[i] = kept - f.rate * first[i] / (std::sqrt(second[i] / f.correction2) + f.epsilon);
  }
}

// Calls span(begin, length) for spans of n numbers.
template <typename Span>
void for_each_span(std::int64_t n, const Span& span) {
  constexpr std::int64_t kSpan = 8192, kSpansPerThread = 4;  // fewer are not worth waking a thread
  parallel_for((n + kSpan - 1) / kSpan, kSpansPerThread,
               [&](std::int64_t i) { span(i * kSpan, std::min(kSpan, n - i * kSpan)); });
}

}  // namespace

void update(const SgdUpdate& by, const at::Tensor& parameter, const at::Tensor& gradient,
            const at::Tensor& velocity) {
  const at::Tensor laid_out = laid_out_as(parameter, gradient);
  float* p = parameter.data_ptr<float>();
  float* v = state_of(parameter, velocity);
  const float* g = laid_out.data_ptr<float>();
  for_each_span(parameter.numel(), [&](std::int64_t at, std::int64_t n) {
    sgd(n, p + at, g + at, v + at, static_cast<float>(by.rate), static_cast<float>(by.momentum),
        static_cast<float>(by.decay));
  });
}

void update(const AdamUpdate& by, std::int64_t step, const at::Tensor& parameter, const at::Tensor& gradient,
            const at::Tensor& first_moment, const at::Tensor& second_moment) {
  const double correction1 = 1 - std::pow(by.beta1, static_cast<double>(step));
  const double correction2 = 1 - std::pow(by.beta2, static_cast<double>(step));
  const at::Tensor laid_out = laid_out_as(parameter, gradient);
  float* p = parameter.data_ptr<float>();
  float* first = state_of(parameter, first_moment);
  float* second = state_of(parameter, second_moment);
  const float* g = laid_out.data_ptr<float>();
  const AdamFactors factors{.rate = static_cast<float>(by.rate / correction1),
                            .keep1 = static_cast<float>(by.beta1),
                            .take1 = static_cast<float>(1 - by.beta1),
                            .keep2 = static_cast<float>(by.beta2),
                            .take2 = static_cast<float>(1 - by.beta2),
                            .correction2 = static_cast<float>(correction2),
                            .epsilon = static_cast<float>(by.epsilon),
                            .decay = static_cast<float>(by.decay),
                            .shrinkage = static_cast<float>(by.shrinkage)};
  for_each_span(parameter.numel(), [&](std::int64_t at, std::int64_t n) {
    adam(n, p + at, g + at, first + at, second + at, factors);
  });
}

}  // namespace lowtide::cpu
