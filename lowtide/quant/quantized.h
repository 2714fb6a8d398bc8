#pragma once

#include <ATen/ATen.h>

#include "lowtide/quant/quantizer_kernels.h"

namespace lowtide {

// Bits from here on are fp32: a float's significand has 24 bits, so such codes would round nothing.
inline constexpr int kFirstFloatBits = 24;

inline bool is_float_bits(int bits) { return bits == 0 || bits >= kFirstFloatBits; }

// value = code * scale + offset, with codes 0 .. 2^bits - 1. Where bits is 0 nothing was quantised: `code`
// holds the float values themselves, scale and offset are undefined.
struct Quantized {
  at::Tensor code;    // uint8 up to 8 bits, int32 above, or float32; images are NHWC in memory
  at::Tensor scale;   // float32, one element or one a row (dimension 0); on the tensor's device
  at::Tensor offset;  // likewise
  DeviceBits bits = 0;
};

}  // namespace lowtide
