// The passes of the quantiser over an activation of the first group of a CIFAR ResNet: batch 128, 16
// channels, 32×32.
#include <benchmark/benchmark.h>

#include "lowtide/base/torch.h"
#include "lowtide/quant/quantizer.h"

namespace lowtide {
namespace {

torch::Tensor activation() {
  return torch::randn({128, 16, 32, 32}).contiguous(torch::MemoryFormat::ChannelsLast);
}

void count_bytes(benchmark::State& state, const torch::Tensor& x, std::int64_t bytes_per_element) {
  state.SetBytesProcessed(state.iterations() * x.numel() * bytes_per_element);
}

void range(benchmark::State& state) {
  const torch::Tensor x = activation();
  for (auto _ : state) benchmark::DoNotOptimize(measure_range(x, RangeGroup::kTensor));
  count_bytes(state, x, 4);
}
BENCHMARK(range)->Unit(benchmark::kMillisecond)->UseRealTime();

void encode_nearest(benchmark::State& state) {
  const torch::Tensor x = activation();
  const Range of_x = measure_range(x, RangeGroup::kTensor);
  for (auto _ : state) benchmark::DoNotOptimize(encode(x, of_x, 8));
  count_bytes(state, x, 5);
}
BENCHMARK(encode_nearest)->Unit(benchmark::kMillisecond)->UseRealTime();

void encode_stochastic(benchmark::State& state) {
  const torch::Tensor x = activation();
  const Range of_x = measure_range(x, RangeGroup::kTensor);
  NoiseKey key{.seed = 1};
  for (auto _ : state) {
    ++key.step;
    benchmark::DoNotOptimize(encode(x, of_x, 8, Noise::drawn(key)));
  }
  count_bytes(state, x, 5);
}
BENCHMARK(encode_stochastic)->Unit(benchmark::kMillisecond)->UseRealTime();

void decode_codes(benchmark::State& state) {
  const torch::Tensor x = activation();
  const Quantized q = encode(x, measure_range(x, RangeGroup::kTensor), 8);
  for (auto _ : state) benchmark::DoNotOptimize(decode(q));
  count_bytes(state, x, 5);
}
BENCHMARK(decode_codes)->Unit(benchmark::kMillisecond)->UseRealTime();

// What the fused passes replace: the same by a chain of libtorch calls.
void libtorch_chain(benchmark::State& state) {
  const torch::Tensor x = activation();
  for (auto _ : state) {
    const auto [low, high] = torch::aminmax(x);
    const torch::Tensor scale = ((high - low) / 255).clamp_min(1e-8);
    benchmark::DoNotOptimize(x.sub(low).div_(scale).clamp_(0, 255).round_().mul_(scale).add_(low));
  }
  count_bytes(state, x, 4);
}
BENCHMARK(libtorch_chain)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace lowtide
