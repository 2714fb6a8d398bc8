#pragma once

#include <cstddef>
#include <cstdint>

#include "lowtide/quant/quantizer_kernels.h"

// The CUDA engine's kernels on plain device memory: no torch, so that nvcc compiles them alone. All images are NHWC, all
// weights out × rows × columns × in. `stream` is a cudaStream_t.

namespace lowtide::cuda {

inline constexpr int kMostTaps = 49;      // of a convolution that has kernels: 7 × 7
inline constexpr float kEpsilon = 1e-5f;  // kNormEpsilon, as kernels need it

struct ConvGeometry {
  int images = 0, height = 0, width = 0, inputs = 0;  // of the input
  int outputs = 0, rows = 0, cols = 0;                // of the output
  int kernel_rows = 0, kernel_cols = 0, stride_rows = 1, stride_cols = 1, pad_rows = 0, pad_cols = 0;
  bool depthwise = false;  // every output of the input of its number alone (depthwise.h)

  LOWTIDE_HOST_DEVICE int taps() const { return kernel_rows * kernel_cols; }
  LOWTIDE_HOST_DEVICE int input_pixels() const { return images * height * width; }
  LOWTIDE_HOST_DEVICE int output_pixels() const { return images * rows * cols; }
};

// Codes in device memory with one range for all: value = scale · code + offset.
struct Codes {
  const std::uint8_t* code = nullptr;
  const float* scale = nullptr;
  const float* offset = nullptr;
  DeviceBits bits;
};

// ---- Weights -------------------------------------------------------------------------------------------------------

struct DepthwiseChannel;

// One layer's weight and what a step makes of it. The packed forms hold the operands of the tensor cores in the order in
// which a warp's lanes read them.
struct WeightLayer {
  const float* weight = nullptr;  // nothing: code, scale and offset are there already, and are packed
  int outputs = 0, kernel_rows = 0, kernel_cols = 0, inputs = 0;  // inputs of a group
  DeviceBits bits;
  std::uint8_t* code = nullptr;
  float* scale = nullptr;            // a row each
  float* offset = nullptr;           // likewise
  std::uint32_t* forward = nullptr;  // bytes, for the output: packed_forward_bytes()
  int* tap_prefix =
      nullptr;  // Σ code over inputs and the taps above and left: (rows + 1) × (cols + 1) × outputs
  float* tap_value = nullptr;  // Σ value over outputs: taps × inputs
  // For the input gradient: each value in three limbs, signed bytes, the greatest first. Limb after limb, 32 values along the
  // sum of sixteen columns are packed as in `forward`. A value is multiplied by 2^21 / 2^e before it is split, where 2^e is the
  // greatest power of two up to the layer's largest value.
  std::uint32_t* limbs = nullptr;  // packed_limb_bytes()
  float* limb_scale = nullptr;     // one number: 2^e / 2^21
  // The sum of each limb over taps and outputs, limbs × inputs, in zeroed memory; where images may stay.
  int* limb_sums = nullptr;
  DepthwiseChannel* depthwise = nullptr;  // by output, in place of the packed forms and their sums
};
inline constexpr int kLimbs = 3;
// Whether images of such a convolution may stay (below).
LOWTIDE_HOST_DEVICE inline bool may_stay(int outputs, int kernel_rows, int kernel_cols, int inputs) {
  return kernel_rows == 3 && kernel_cols == 3 && inputs == outputs &&
         (inputs == 16 || inputs == 32 || inputs == 64);
}

std::size_t packed_forward_bytes(int outputs, int taps, int inputs);
std::size_t packed_limb_bytes(int outputs, int taps, int inputs);
void encode_weights(const WeightLayer* layers, int count, void* stream);

// ---- Statistics of channels ----------------------------------------------------------------------------------------

// A batch normalisation's constants in one call, by channel.
struct NormConstants {
  float* mean = nullptr;
  float* factor = nullptr;
  float* bias = nullptr;
  float* inverse_deviation = nullptr;
  float* min = nullptr;    // one number: of the result after normalisation and ReLU
  float* range = nullptr;  // one number
};

// A batch normalisation whose statistics a convolution's kernel takes. `work` has statistics_bytes() zeroed bytes, for one call.
struct NormStatistics {
  void* work = nullptr;  // nothing: no statistics are taken
  const float* weight = nullptr;
  const float* bias = nullptr;
  float* running_mean = nullptr;
  float* running_variance = nullptr;
  double momentum = 0;
  bool uses_batch = false;  // else by the running statistics
  bool relu = false;
  NormConstants out;
};
std::size_t statistics_bytes(int channels);

// The sums that a normalisation's gradient needs, and what comes of them.
struct NormGradientSums {
  void* work = nullptr;  // zeroed, statistics_bytes()
  NormConstants norm;
  bool relu = false, uses_batch = false;
  const float* y = nullptr;                // the convolution's output
  const std::uint8_t* positive = nullptr;  // ReLU's signs where a residual was added, a bit each
  float* weight_gradient = nullptr;
  float* bias_gradient = nullptr;
  float* gradient_mean = nullptr;
  float* slope = nullptr;
};

// ---- Convolutions --------------------------------------------------------------------------------------------------

struct OutputArguments {
  ConvGeometry g;
  Codes x;
  WeightLayer w;
  float* y = nullptr;
  NormStatistics statistics;
};
void conv_output(const OutputArguments& a, void* stream);

struct InputGradientArguments {
  ConvGeometry g;
  Codes dy;
  WeightLayer w;
  float* dx = nullptr;
  const float* other = nullptr;  // added, where it is: at every pixel, or at those a stride apart
  int other_rows = 0, other_cols = 0, other_stride_rows = 1, other_stride_cols = 1;
  NormGradientSums
      sums;  // of the normalisation that made the input, where work is given: dx is masked by its ReLU then
};
// Whether there is a kernel: for steps of up to 4 and kernels of up to 16 always.
bool has_conv_input_gradient(const ConvGeometry& g);
void conv_input_gradient(const InputGradientArguments& a, void* stream);

struct WeightGradientArguments {
  ConvGeometry g;
  Codes dy, x;
  void* work = nullptr;  // zeroed, weight_gradient_work_bytes()
  float* dw = nullptr;
  void* products = nullptr;  // weight_gradient_product_bytes(), where there are any
};
std::size_t weight_gradient_work_bytes(const ConvGeometry& weight);
std::size_t weight_gradient_product_bytes(const ConvGeometry& g);
void conv_weight_gradient(const WeightGradientArguments& a, void* stream);

// The same of many layers at once, where images are small.
bool has_image_weight_gradient(const ConvGeometry& g);
void image_weight_gradients(const WeightGradientArguments* layers, int count, void* stream);

// ---- Normalisation -------------------------------------------------------------------------------------------------

// normalise(y), ReLU → codes.
struct NormEncodeArguments {
  const float* y = nullptr;
  std::int64_t n = 0;
  int channels = 0;
  NormConstants norm;
  bool relu = false;
  const float* min = nullptr;  // the range to encode by
  const float* range = nullptr;
  DeviceBits bits;
  std::uint8_t* code = nullptr;  // out
  float* scale = nullptr;        // out
};
void norm_encode(const NormEncodeArguments& a, void* stream);

// normalise(y) + residual, ReLU → floats, their range, ReLU's signs.
struct NormAddArguments {
  const float* y = nullptr;
  const float* residual = nullptr;
  std::int64_t n = 0;
  int channels = 0;
  NormConstants norm;
  bool relu = false;
  void* work = nullptr;  // zeroed, kExtremesBytes
  float* value = nullptr;
  std::uint8_t* positive = nullptr;  // n / 8 bytes, rounded up; or nothing
  float* min = nullptr;
  float* range = nullptr;
};
inline constexpr std::size_t kExtremesBytes = 512;
void norm_add(const NormAddArguments& a, void* stream);

// The sums of a gradient that no convolution took, and the gradient that ReLU let pass.
struct GradientSumsArguments {
  const float* gradient = nullptr;
  float* masked = nullptr;  // out
  std::int64_t n = 0;
  int channels = 0;
  NormGradientSums sums;
};
void gradient_sums(const GradientSumsArguments& a, void* stream);

// The error at the convolution's output from the masked gradient at the normalisation's result, twice: its range, then
// its codes or itself.
struct NormGradientArguments {
  const float* gradient = nullptr;
  std::int64_t n = 0;
  int channels = 0;
  NormGradientSums sums;
  void* work = nullptr;  // zeroed, kExtremesBytes
  float* min = nullptr;  // out
  float* range = nullptr;
  DeviceBits bits;
  bool noisy = false;
  NoiseCounter counter;
  const std::int64_t* device_step = nullptr;  // the noise's step, where it lies on the device
  std::uint8_t* code = nullptr;               // out, or
  float* error = nullptr;                     // out
  float* scale = nullptr;                     // out, with codes
};
void norm_gradient_range(const NormGradientArguments& a, void* stream);
void norm_gradient_encode(const NormGradientArguments& a, void* stream);

// ---- Images that stay ----------------------------------------------------------------------------------------------

// Whether a convolution has a kernel in which each block computes one image and keeps it in registers (resident.cuh). `waits`:
// the blocks wait for each other (for statistics, sums or ranges), so all of them must fit on this GPU at once.
bool stays_resident(const ConvGeometry& g, bool waits);

// One kernel for conv_output, then norm_encode or norm_add, then the codes of that sum for the layer that reads it.
struct ResidentForwardArguments {
  // y, n, channels and norm of `encode` and `add` are not read: `output` has them.
  OutputArguments output;      // y is written where it is given
  NormEncodeArguments encode;  // where `code` is given: by the range that is found, unless `min` is given
  NormAddArguments add;        // where `value` is given
  // The sum's codes, where `code` is given: by the range that is found.
  struct {
    DeviceBits bits;
    std::uint8_t* code = nullptr;
    float* scale = nullptr;
  } reader;
};
void resident_forward(const ResidentForwardArguments& a, void* stream);

// One kernel for conv_input_gradient, then norm_gradient_range and norm_gradient_encode of the normalisation before the input.
// The gradient is also written as floats if `gradient.dx` is given. error.sums is gradient.sums.
struct ResidentBackwardArguments {
  InputGradientArguments gradient;
  NormGradientArguments error;
};
void resident_backward(const ResidentBackwardArguments& a, void* stream);

}  // namespace lowtide::cuda
