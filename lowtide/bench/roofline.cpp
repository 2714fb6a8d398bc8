#include "lowtide/bench/roofline.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "lowtide/base/error.h"
#include "lowtide/base/scratch.h"
#include "lowtide/bench/timing.h"
#include "lowtide/engine/integer/tiles.h"
#include "lowtide/tasks/setup.h"

namespace lowtide {
namespace {

// Far more than caches hold: 32 MiB a core of a CPU, 50 MiB of an H200.
constexpr std::int64_t kCopiedOnCpu = 256 << 20, kCopiedOnGpu = 1 << 30;
// Rows and columns: some milliseconds of a GPU, some tenths of a second of a CPU's core.
constexpr std::int64_t kSideOnCpu = 1536, kSideOnGpu = 8192;
constexpr int kTries = 5;

double copied_bytes_per_second(const torch::Device& device) {
  const std::int64_t bytes = device.is_cpu() ? kCopiedOnCpu : kCopiedOnGpu;
  const auto options = torch::TensorOptions(torch::kByte).device(device);
  const torch::Tensor from = torch::ones({bytes}, options), to = torch::empty_like(from);
  const double milliseconds = fastest(device, kTries, [&] { to.copy_(from); });
  return 2e3 * static_cast<double>(bytes) / milliseconds;
}

double square_macs_per_second(const torch::Device& device,
                              const std::function<void(std::int64_t)>& multiply) {
  const std::int64_t side = device.is_cpu() ? kSideOnCpu : kSideOnGpu;
  const double milliseconds = fastest(device, kTries, [&] { multiply(side); });
  const auto n = static_cast<double>(side);
  return 1e3 * n * n * n / milliseconds;
}

double float_macs_per_second(const torch::Device& device, bool tf32) {
  allow_tf32(tf32);
  torch::Tensor a, b, y;
  const double macs = square_macs_per_second(device, [&](std::int64_t side) {
    if (!a.defined()) {
      a = torch::randn({side, side}, device);
      b = torch::randn({side, side}, device);
      y = torch::empty_like(a);
    }
    at::mm_out(y, a, b);
  });
  allow_tf32(false);
  return macs;
}

// Every core multiplies what its nearest cache holds.
double byte_macs_per_second_on_cpu() {
  const integer::TileKernels& tiles = integer::tile_kernels(integer::instruction_sets().front());
  constexpr std::int64_t kQuads = 64, kPixels = 16, kRepeat = 10'000;
  constexpr int kVectors = 2;
  const int threads = at::get_num_threads();
  constexpr int kTileTries =
      100;  // some ms each: a few of them may all fall into a slow moment of the machine
  const double milliseconds = fastest(torch::kCPU, kTileTries, [&] {
    at::parallel_for(0, threads, 1, [&](std::int64_t begin, std::int64_t end) {
      Scratch<std::int8_t> input;
      Scratch<std::uint8_t> weight;
      Scratch<std::int32_t> sum;
      constexpr std::int64_t kWeightBytes = kQuads * kVectors * integer::kVectorBytes;
      std::fill_n(input.at_least(kQuads * kPixels * 4), kQuads * kPixels * 4, std::int8_t{3});
      std::fill_n(weight.at_least(kWeightBytes), kWeightBytes, std::uint8_t{5});
      const std::int32_t here = 0;
      const integer::TileUse use(tiles);
      for (std::int64_t i = begin * kRepeat; i < end * kRepeat; ++i) {
        tiles.dot_row({.input = input.at_least(0),
                       .weight = weight.at_least(0),
                       .tap = &here,
                       .taps = 1,
                       .quads = kQuads,
                       .layout = tiles.layout(kQuads, kPixels),
                       .sum = sum.at_least(kPixels * kVectors * 16),
                       .pixels = kPixels},
                      kVectors);
      }
    });
  });
  const double products = static_cast<double>(threads) * kRepeat * kQuads * 4 * kPixels * kVectors * 16;
  return products / milliseconds * 1e3;
}

double byte_macs_per_second_on_gpu([[maybe_unused]] const torch::Device& device) {
#if defined(LOWTIDE_WITH_CUDA)
  torch::Tensor a, b;
  return square_macs_per_second(device, [&](std::int64_t side) {
    if (!a.defined()) {
      const auto bytes = torch::TensorOptions(torch::kChar).device(device);
      a = torch::full({side, side}, 3, bytes);
      b = torch::full({side, side}, 5, bytes)
              .t();  // both with the sum's dimension last, as tensor cores read bytes
    }
    at::_int_mm(a, b);
  });
#else
  invariant_failed("a build with CUDA", __FILE__, __LINE__, "a CUDA benchmark");
#endif
}

}  // namespace

double measure_byte_peak(const torch::Device& device) {
  return device.is_cpu() ? byte_macs_per_second_on_cpu() : byte_macs_per_second_on_gpu(device);
}

MachinePeaks measure_peaks(const torch::Device& device) {
  const torch::NoGradGuard no_grad;
  MachinePeaks peaks;
  peaks.bytes = copied_bytes_per_second(device);
  peaks.float_macs = float_macs_per_second(device, /*tf32=*/false);
  peaks.tf32_macs = device.is_cpu() ? peaks.float_macs : float_macs_per_second(device, /*tf32=*/true);
  peaks.byte_macs = measure_byte_peak(device);
  return peaks;
}

double least_milliseconds(const LeastWork& work, const MachinePeaks& peaks, bool tf32) {
  const double memory = work.bytes / peaks.bytes,
               multipliers = work.byte_macs / peaks.byte_macs +
                             work.float_macs / (tf32 ? peaks.tf32_macs : peaks.float_macs);
  return 1e3 * std::max(memory, multipliers);
}

}  // namespace lowtide
