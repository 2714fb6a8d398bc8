#pragma once

#include "lowtide/engine/cuda/device.cuh"

// Products of bytes by a warpgroup, four warps, with operands in shared memory (`wgmma`, compute capability 9.0). Rows of 128
// bytes along the sum; groups of eight begin at multiples of 1024, and in each the sixteen-byte packets of row r stand at
// packet ^ r % 8.

namespace lowtide::cuda {

inline constexpr int kPacketBytes = 16, kRowBytes = 128;
inline constexpr int kStepBytes = 32;  // along the sum, of one instruction

__device__ inline int swizzled(int row, int packet) {
  return row * kRowBytes + ((packet ^ (row & 7)) * kPacketBytes);
}

// "Matrix descriptor" of the PTX manual: 128-byte swizzle, 1024 bytes from a group of eight rows to the next.
__device__ inline std::uint64_t operand(unsigned shared_address) {
  constexpr std::uint64_t kSwizzle = 1ull << 62, kGroups = static_cast<std::uint64_t>(1024 >> 4) << 32;
  return kSwizzle | kGroups | (1ull << 16) | ((shared_address & 0x3ffffu) >> 4);
}

__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
__device__ inline void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// What threads have written to shared memory is visible to the tensor cores, after a barrier.
__device__ inline void show_to_tensor_cores() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

#define LOWTIDE_EIGHT(d, i)                                                                   \
  "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3]), "+r"(d[i + 4]), "+r"(d[i + 5]), \
      "+r"(d[i + 6]), "+r"(d[i + 7])
#define LOWTIDE_NINETY_SIX(d)                                                                 \
  LOWTIDE_EIGHT(d, 0), LOWTIDE_EIGHT(d, 8), LOWTIDE_EIGHT(d, 16), LOWTIDE_EIGHT(d, 24),       \
      LOWTIDE_EIGHT(d, 32), LOWTIDE_EIGHT(d, 40), LOWTIDE_EIGHT(d, 48), LOWTIDE_EIGHT(d, 56), \
      LOWTIDE_EIGHT(d, 64), LOWTIDE_EIGHT(d, 72), LOWTIDE_EIGHT(d, 80), LOWTIDE_EIGHT(d, 88)

// clang-format off
// d += 64 × 32 · (192 × 32)ᵀ, bytes by signed bytes. Lane l of warp w has of rows 16 w + l / 4 and 8 below (d[4 j + 2], d[4 j + 3])
// the columns 8 j + l % 4 * 2 and the next. `adds`: else d is overwritten.
__device__ inline void multiply_limbs(int (&d)[96], std::uint64_t a, std::uint64_t b, int adds) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %98, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n192k32.s32.u8.s8 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "
      "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, "
      "%42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "
      "%62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, "
      "%82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95}, %96, %97, p;}"
      : LOWTIDE_NINETY_SIX(d) : "l"(a), "l"(b), "r"(adds));
}

// The same of bytes without a sign.
__device__ inline void multiply_codes(int (&d)[96], std::uint64_t a, std::uint64_t b, int adds) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %98, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n192k32.s32.u8.u8 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "
      "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, "
      "%42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "
      "%62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, "
      "%82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95}, %96, %97, p;}"
      : LOWTIDE_NINETY_SIX(d) : "l"(a), "l"(b), "r"(adds));
}

// With eight rows of bytes.
__device__ inline void multiply_codes(int (&d)[4], std::uint64_t a, std::uint64_t b, int adds) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %6, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n8k32.s32.u8.u8 {%0, %1, %2, %3}, %4, %5, p;}"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]) : "l"(a), "l"(b), "r"(adds));
}
// clang-format on

#undef LOWTIDE_NINETY_SIX
#undef LOWTIDE_EIGHT

}  // namespace lowtide::cuda
