// Batch normalisation of the first group of a CIFAR ResNet, ours (independent of the number of threads) and
// libtorch's.
#include <benchmark/benchmark.h>

#include "lowtide/base/torch.h"
#include "lowtide/engine/cpu/normalisation.h"

namespace lowtide {
namespace {

struct Problem {
  torch::Tensor x =
      torch::randn({128, 16, 32, 32}).contiguous(torch::MemoryFormat::ChannelsLast).requires_grad_();
  torch::Tensor weight = torch::ones({16}).requires_grad_(), bias = torch::zeros({16}).requires_grad_();
  torch::Tensor mean = torch::zeros({16}), variance = torch::ones({16});
  torch::Tensor dy = torch::randn({128, 16, 32, 32}).contiguous(torch::MemoryFormat::ChannelsLast);
};

// Statistics, normalisation, and the gradients of both.
void ours(benchmark::State& state) {
  Problem p;
  const torch::NoGradGuard no_grad;
  const torch::Tensor x = p.x.detach();
  const NormParameters parameters{p.weight.detach(), p.bias.detach(), p.mean, p.variance, true, 0.1};
  for (auto _ : state) {
    const cpu::ChannelStatistics statistics = cpu::ChannelMoments().of(x);
    const cpu::Normalisation norm =
        cpu::start_normalisation(parameters, /*relu=*/false, x.numel() / x.size(1), &statistics);
    benchmark::DoNotOptimize(cpu::map_and_add(x, norm.map, {}).value);
    benchmark::DoNotOptimize(cpu::MapBackward(x, norm.map, norm.scatter, {}).of(p.dy, false).input);
  }
}
BENCHMARK(ours)->Name("batch_norm/ours")->Unit(benchmark::kMillisecond)->UseRealTime();

void libtorch(benchmark::State& state) {
  Problem p;
  for (auto _ : state) {
    torch::batch_norm(p.x, p.weight, p.bias, p.mean, p.variance, true, 0.1, 1e-5, false).backward(p.dy);
  }
}
BENCHMARK(libtorch)->Name("batch_norm/libtorch")->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace lowtide
