// Batch normalisation of the first group of a CIFAR ResNet, ours (independent of the number of threads) and
// libtorch's.
#include <benchmark/benchmark.h>
#include <torch/torch.h>

#include "lowtide/nn/batch_norm.h"

namespace lowtide {
namespace {

struct Problem {
  torch::Tensor x =
      torch::randn({128, 16, 32, 32}).contiguous(torch::MemoryFormat::ChannelsLast).requires_grad_();
  torch::Tensor weight = torch::ones({16}).requires_grad_(), bias = torch::zeros({16}).requires_grad_();
  torch::Tensor mean = torch::zeros({16}), variance = torch::ones({16});
  torch::Tensor dy = torch::randn({128, 16, 32, 32}).contiguous(torch::MemoryFormat::ChannelsLast);
};

void ours(benchmark::State& state) {
  Problem p;
  for (auto _ : state) batch_norm(p.x, p.weight, p.bias, p.mean, p.variance, true, 0.1).backward(p.dy);
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
