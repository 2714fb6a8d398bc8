#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "lowtide/quant/quantizer_kernels.h"

// Eight neighbouring numbers of a tensor, which a thread takes at once, and their codes; for CUDA kernels.

namespace lowtide {

inline constexpr int kVector = 8;

struct Vector {
  float value[kVector];

  __device__ static Vector load(const float* from, long long at, long long n) {
    Vector v;
    if (at + kVector <= n) {
      const float4 a = __ldg(reinterpret_cast<const float4*>(from + at)),
                   b = __ldg(reinterpret_cast<const float4*>(from + at) + 1);
      v = {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
    } else {
#pragma unroll
      for (int i = 0; i < kVector; ++i) v.value[i] = at + i < n ? from[at + i] : 0.0f;
    }
    return v;
  }
  __device__ void store(float* to, long long at, long long n) const {
    if (at + kVector <= n) {
      reinterpret_cast<float4*>(to + at)[0] = make_float4(value[0], value[1], value[2], value[3]);
      reinterpret_cast<float4*>(to + at)[1] = make_float4(value[4], value[5], value[6], value[7]);
    } else {
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        if (at + i < n) to[at + i] = value[i];
      }
    }
  }
};

__device__ inline void store_codes(const unsigned (&code)[kVector], std::uint8_t* to, long long at,
                                   long long n) {
  if (at + kVector <= n) {
    const unsigned low = code[0] | code[1] << 8 | code[2] << 16 | code[3] << 24;
    const unsigned high = code[4] | code[5] << 8 | code[6] << 16 | code[7] << 24;
    *reinterpret_cast<uint2*>(to + at) = make_uint2(low, high);
  } else {
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      if (at + i < n) to[at + i] = static_cast<std::uint8_t>(code[i]);
    }
  }
}

// Four neighbouring numbers of n, from a multiple of four on; zeros where there are none.
__device__ inline float4 four_of(const float* x, long long at, long long n) {
  if (at + 4 <= n) return __ldg(reinterpret_cast<const float4*>(x + at));
  return make_float4(at < n ? x[at] : 0.0f, at + 1 < n ? x[at + 1] : 0.0f, at + 2 < n ? x[at + 2] : 0.0f,
                     0.0f);
}
__device__ inline void store_four(const float4& v, float* to, long long at, long long n) {
  if (at + 4 <= n) {
    *reinterpret_cast<float4*>(to + at) = v;
    return;
  }
  if (at < n) to[at] = v.x;
  if (at + 1 < n) to[at + 1] = v.y;
  if (at + 2 < n) to[at + 2] = v.z;
}
// The first code in the lowest byte.
__device__ inline void store_four_codes(unsigned codes, std::uint8_t* to, long long at, long long n) {
  if (at + 4 <= n) {
    *reinterpret_cast<unsigned*>(to + at) = codes;
    return;
  }
  for (int i = 0; i < 3; ++i) {
    if (at + i < n) to[at + i] = static_cast<std::uint8_t>(codes >> (8 * i));
  }
}
__device__ inline unsigned four_codes_of(const std::uint8_t* codes, long long at, long long n) {
  if (at + 4 <= n) return __ldg(reinterpret_cast<const unsigned*>(codes + at));
  unsigned four = 0;
  for (int i = 0; i < 3; ++i) {
    if (at + i < n) four |= static_cast<unsigned>(codes[at + i]) << (8 * i);
  }
  return four;
}

struct Encoder {
  float min, scale, top, inverse;  // 1 / scale

  __device__ static Encoder make(float min, float range, float top) {
    const float scale = scale_of(range, top);
    return {min, scale, top, __fdiv_rn(1.0f, scale)};
  }
  // The first thread of all leaves the scale for whoever decodes.
  __device__ static Encoder make(const float* min, const float* range, const DeviceBits& bits,
                                 float* scale_out) {
    const Encoder encoder = make(*min, *range, bits.top());
    if (blockIdx.x == 0 && threadIdx.x == 0) *scale_out = encoder.scale;
    return encoder;
  }

  // The quotient to the bit (Markstein, "Computation of elementary functions on the IBM RISC System/6000", 1990, theorem 4):
  // with the reciprocal rounded right, one correction by the exact remainder is enough. Only a scale whose digits are all ones
  // is excepted.
  __device__ float quotient(float x) const {
    const float q = __fmul_rn(x, inverse);
    return __fmaf_rn(__fmaf_rn(-q, scale, x), inverse, q);
  }

  __device__ unsigned code(float x, float noise = 0.0f) const {
    return __float_as_uint(rounded(x, noise)) & 0x7fffffu;
  }
  // Four codes of a byte, the first lowest.
  __device__ unsigned four_codes(float a, float b, float c, float d) const {
    return four_bytes(rounded(a, 0), rounded(b, 0), rounded(c, 0), rounded(d, 0));
  }
  __device__ static unsigned four_bytes(float a, float b, float c, float d) {
    return __byte_perm(__byte_perm(__float_as_uint(a), __float_as_uint(b), 0x0040),
                       __byte_perm(__float_as_uint(c), __float_as_uint(d), 0x0040), 0x5410);
  }
  // 2^23 + the code: the sum is rounded to a whole number, to even in the middle, and its low bits are that. A NaN is
  // code 0, and so is an infinity, whose quotient is one.
  __device__ float rounded(float x, float noise) const {
    const float v = __fadd_rn(quotient(__fsub_rn(x, min)), noise);
    return __fadd_rn(fminf(fmaxf(v, 0.0f), top), 0x1p23f);
  }
};

}  // namespace lowtide
