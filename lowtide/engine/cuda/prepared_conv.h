#pragma once

#include <vector>

#include "lowtide/engine/conv_norm.h"
#include "lowtide/engine/cuda/kernels.h"

namespace lowtide::cuda {

static_assert(kEpsilon == static_cast<float>(kNormEpsilon));

// Whether there are kernels for such a convolution.
bool has_kernels(const ConvWeight& conv);

// A convolution in one pass of a trunk: its weight in the forms that kernels read, and device memory for what the passes
// around it find out. All convolutions of a trunk share a few allocations, and each keeps those alive that its pointers lead into.
struct PreparedCudaConv final : PreparedConv {
  WeightLayer layer;
  bool has_backward = false;  // memory for the way back

  // Zeroed, each to be used once.
  void* statistics = nullptr;
  void* gradient_sums = nullptr;
  void* sum_extremes = nullptr;
  void* error_extremes = nullptr;
  void* weight_gradient = nullptr;

  // Floats, by channel.
  enum Row {
    kMean,
    kFactor,
    kBias,
    kInverseDeviation,
    kWeightGradient,
    kBiasGradient,
    kGradientMean,
    kSlope,
    kRows
  };
  at::Tensor by_channel;  // kRows × outputs
  // Single floats.
  enum Number {
    kMin,
    kRange,
    kScale,
    kSumMin,
    kSumRange,
    kSumScale,
    kErrorMin,
    kErrorRange,
    kErrorScale,
    kNumbers
  };
  at::Tensor numbers;  // kNumbers

  float* row(Row row) const { return by_channel.data_ptr<float>() + row * by_channel.size(1); }
  float* number(Number number) const { return numbers.data_ptr<float>() + number; }
  at::Tensor tensor(Number number) const { return numbers.narrow(0, number, 1); }
  NormConstants constants() const {
    return {.mean = row(kMean),
            .factor = row(kFactor),
            .bias = row(kBias),
            .inverse_deviation = row(kInverseDeviation),
            .min = number(kMin),
            .range = number(kRange)};
  }

  std::vector<at::Tensor> memory;  // that the pointers lead into
};

std::vector<std::shared_ptr<const PreparedConv>> prepare(const std::vector<ConvWeight>& weights, bool keeps);

// Of a weight that was encoded already, for a convolution that stands alone.
std::shared_ptr<const PreparedCudaConv> pack(const Quantized& weight, bool keeps);

}  // namespace lowtide::cuda
