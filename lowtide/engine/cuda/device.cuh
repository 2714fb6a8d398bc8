#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "lowtide/engine/cuda/kernels.h"

// What the kernels share: order-free sums and extremes, the tensor cores' instructions, copies into shared memory.

namespace lowtide::cuda {

inline constexpr int kWarp = 32;

// ---- Sums and extremes that do not depend on the order -------------------------------------------------------------

// A sum of doubles as a fixed-point number of two words, which blocks add to in any order with the same result. Units are
// 2^-20 and 2^-68. What a term leaves for the low word is at most 2^47 of its units, of either sign, so 2^16 blocks have
// room whatever they add, and far more in fact; the high word has room for what fits(). What is lost of a term is below
// 2^-69, and gradients so small that it would count are far below the least step of a code, 1e-8.
struct OrderFreeSum {
  static constexpr double kHighUnit = 0x1p-20, kLowUnit = 0x1p-68;

  // A term of one of so many blocks.
  __device__ static bool fits(double term, unsigned blocks) { return fabs(term) * blocks < 0x1p42; }

  __device__ static void add(long long* high, long long* low, double term) {
    const double whole = rint(term * (1 / kHighUnit));
    const double rest = term - whole * kHighUnit;
    atomicAdd(reinterpret_cast<unsigned long long*>(high),
              static_cast<unsigned long long>(__double2ll_rn(whole)));
    atomicAdd(reinterpret_cast<unsigned long long*>(low),
              static_cast<unsigned long long>(__double2ll_rn(rest * (1 / kLowUnit))));
  }
  __device__ static double value(long long high, long long low) {
    return static_cast<double>(high) * kHighUnit + static_cast<double>(low) * kLowUnit;
  }
};

// Floats as whole numbers of the same order, above 0; a NaN is the greatest.
__device__ inline unsigned order_key(float x) {
  if (x != x) return 0xffffffffu;
  const unsigned bits = __float_as_uint(x);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ inline float from_order_key(unsigned key) {
  return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}
// Of minus x: the key of a minimum, so that both ends are greatest keys and zeroed memory stands for none.
__device__ inline unsigned reverse_order_key(float x) { return order_key(-x); }
__device__ inline float from_reverse_order_key(unsigned key) { return -from_order_key(key); }

// Blocks add to one of several copies, so that not all wait for one address.
inline constexpr int kCopies = 4;

// Statistics of channels while a kernel runs: words by [copy][kind][channel], keys likewise, then a counter of blocks.
struct ChannelWork {
  static constexpr int kSums = 4, kKeys = 2;
  long long* sums;
  unsigned* keys;
  unsigned* blocks_done;
  int channels;

  __device__ ChannelWork(void* work, int of_channels)
      : sums(static_cast<long long*>(work)),
        keys(reinterpret_cast<unsigned*>(sums + kCopies * kSums * of_channels)),
        blocks_done(keys + kCopies * kKeys * of_channels),
        channels(of_channels) {}

  __device__ void add(int copy, int channel, double first, double second) const {
    long long* at = sums + copy * kSums * channels + channel;
    OrderFreeSum::add(at, at + channels, first);
    OrderFreeSum::add(at + 2 * channels, at + 3 * channels, second);
  }
  __device__ void widen(int copy, int channel, float low, float high) const {
    unsigned* at = keys + copy * kKeys * channels + channel;
    atomicMax(at, reverse_order_key(low));
    atomicMax(at + channels, order_key(high));
  }

  struct Total {
    double first, second;
    float low, high;
  };
  __device__ Total total(int channel) const {
    long long words[kSums]{};
    unsigned ends[kKeys]{};
    for (int copy = 0; copy < kCopies; ++copy) {
      for (int k = 0; k < kSums; ++k) words[k] += __ldcg(sums + (copy * kSums + k) * channels + channel);
      for (int k = 0; k < kKeys; ++k)
        ends[k] = max(ends[k], __ldcg(keys + (copy * kKeys + k) * channels + channel));
    }
    return {OrderFreeSum::value(words[0], words[1]), OrderFreeSum::value(words[2], words[3]),
            from_reverse_order_key(ends[0]), from_order_key(ends[1])};
  }
};

// True in every thread of the last block to get here. What the others wrote before is visible to it then: the barrier makes a
// block's writes known to its first thread, whose fence passes them on.
__device__ inline bool is_last_block(unsigned* blocks_done, unsigned blocks) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicAdd(blocks_done, 1u) == blocks - 1;
    __threadfence();
  }
  __syncthreads();
  return last;
}

// ---- Affine codes --------------------------------------------------------------------------------------------------

// value = scale · (code - zero) + residual, as the CPU's integer engine has it (engine/integer/affine.h).
struct Affine {
  float scale;
  int zero;
  double residual;

  __device__ static Affine of(float scale, float offset, int top) {
    const double at = rint(-static_cast<double>(offset) / static_cast<double>(scale));
    int zero = at >= 0 && at <= 255 ? static_cast<int>(at) : (at > 255 ? 255 : 0);
    double residual = static_cast<double>(offset) + static_cast<double>(zero) * static_cast<double>(scale);
    if (zero > top) {
      residual += static_cast<double>(top - zero) * static_cast<double>(scale);
      zero = top;
    }
    return {scale, zero, residual};
  }
  __device__ static Affine of(const Codes& codes) {
    return of(*codes.scale, *codes.offset, static_cast<int>(codes.bits.top()));
  }
};

// ---- Tensor cores --------------------------------------------------------------------------------------------------

__device__ inline unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

// Four 8 × 8 matrices of halves, or 8 × 16 of bytes; lane i gives the address of a row.
__device__ inline void load_matrices(unsigned row_in_shared, unsigned (&m)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(row_in_shared));
}
__device__ inline void load_matrices(const void* row, unsigned (&m)[4]) {
  load_matrices(shared_address(row), m);
}
__device__ inline void load_matrices_transposed(const void* row, unsigned (&m)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(shared_address(row)));
}

// 16 × 8 += 16 × 32 · 32 × 8, bytes.
__device__ inline void multiply_bytes(int (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, "
      "%1, %2, %3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The same where the right operand's bytes have a sign.
__device__ inline void multiply_signed(int (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, "
      "%1, %2, %3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// And where both have one.
__device__ inline void multiply_both_signed(int (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, "
      "%1, %2, %3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// 16 × 8 += 16 × 16 · 16 × 8, halves.
__device__ inline void multiply_halves(float (&d)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                                       unsigned b0, unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, "
      "%1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Two bytes of four as halves, minus a bias that is given as halves of -(1024 + bias): a byte in the low bits of the half
// 1024 is 1024 + byte.
__device__ inline unsigned halves_of_low_bytes(unsigned bytes, unsigned minus) {
  unsigned result;
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(result) : "r"(__byte_perm(bytes, 0x64646464u, 0x4140)), "r"(minus));
  return result;
}
__device__ inline unsigned halves_of_high_bytes(unsigned bytes, unsigned minus) {
  unsigned result;
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(result) : "r"(__byte_perm(bytes, 0x64646464u, 0x4342)), "r"(minus));
  return result;
}
// Halves of -(1024 + bias), for a bias of 0 to 128: such numbers lie one apart.
__device__ inline unsigned minus_bias(unsigned bias) { return 0xe400e400u + bias * 0x00010001u; }

// ---- Copies into shared memory -------------------------------------------------------------------------------------

template <int kBytes>
__device__ inline void copy_async(void* to, const void* from) {
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from));
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_address(to)), "l"(from),
                 "n"(kBytes));
  }
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;"); }
template <int kPending>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// ---- Small helpers -------------------------------------------------------------------------------------------------

__host__ __device__ inline int divide_up(int a, int b) { return (a + b - 1) / b; }
__host__ __device__ inline int round_up(int a, int b) { return divide_up(a, b) * b; }

}  // namespace lowtide::cuda
