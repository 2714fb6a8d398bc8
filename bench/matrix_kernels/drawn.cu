#include "bench/matrix_kernels/drawn.h"
#include "lowtide/quant/noise.h"

namespace lowtide::cuda::bench {

namespace {

__device__ std::uint32_t word_at(std::uint32_t seed, std::int64_t i) {
  return Philox::block(seed, 77, static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i >> 32), 0, 0)
      .word[0];
}
__global__ void draw_codes(std::uint8_t* to, std::int64_t n, unsigned top, std::uint32_t seed) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) to[i] = static_cast<std::uint8_t>(word_at(seed, i) % (top + 1));
}
// A sum of four even numbers: near enough to a normal one.
__global__ void draw_floats(float* to, std::int64_t n, float scale, float shift, std::uint32_t seed) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const Philox::Block b = Philox::block(seed, 78, static_cast<std::uint32_t>(i), 0, 0, 0);
  float sum = -2;
  for (const std::uint32_t w : b.word) sum += static_cast<float>(w) * 0x1p-32f;
  to[i] = sum * 1.7f * scale + shift;
}

}  // namespace

std::unique_ptr<Buffer<std::uint8_t>> codes(std::size_t n, int bits) {
  static std::uint32_t seed = 1;
  auto b = std::make_unique<Buffer<std::uint8_t>>(n);
  draw_codes<<<blocks_of(n), 256>>>(*b, static_cast<std::int64_t>(n), (1u << bits) - 1, seed++);
  return b;
}
std::unique_ptr<Buffer<float>> floats(std::size_t n, float scale, float shift) {
  static std::uint32_t seed = 1000;
  auto b = std::make_unique<Buffer<float>>(n);
  draw_floats<<<blocks_of(n), 256>>>(*b, static_cast<std::int64_t>(n), scale, shift, seed++);
  return b;
}

}  // namespace lowtide::cuda::bench
