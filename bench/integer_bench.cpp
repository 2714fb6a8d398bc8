// The integer engine's kernels: the tiles on what the nearest cache holds (the machine's limit), whole products of a
// convolution, and the fused passes beside them, on the first group of a CIFAR ResNet (batch 128, 16 channels, 32×32).
#include <benchmark/benchmark.h>
#include <torch/utils.h>

#include "lowtide/base/scratch.h"
#include "lowtide/base/torch.h"
#include "lowtide/engine/cpu/norm_kernels.h"
#include "lowtide/engine/integer.h"

namespace lowtide {
namespace {

const ConvShape kShape{{128, 16, 32, 32}, {16, 16, 3, 3}, {1, 1}, {1, 1}, 1};

torch::Tensor activation(std::int64_t seed) {
  torch::manual_seed(static_cast<std::uint64_t>(seed));
  return torch::randn(kShape.input).contiguous(torch::MemoryFormat::ChannelsLast);
}

Quantized codes(const torch::Tensor& values, RangeGroup group) {
  return encode(values, measure_range(values, group), 8);
}

Quantized weight_codes() {
  return codes(torch::randn(kShape.weight).contiguous(torch::MemoryFormat::ChannelsLast), RangeGroup::kRow);
}

void count_products(benchmark::State& state, double products) {
  state.counters["products"] = benchmark::Counter(products, benchmark::Counter::kIsIterationInvariantRate);
}

void tile(benchmark::State& state, integer::InstructionSet set) {
  constexpr std::int64_t kQuads = 64, kPixels = 16;
  constexpr int kVectors = 2;
  Scratch<std::int8_t> input;
  Scratch<std::uint8_t> weight;
  Scratch<std::int32_t> sum;
  std::fill_n(input.at_least(kQuads * kPixels * 4), kQuads * kPixels * 4, std::int8_t{3});
  std::fill_n(weight.at_least(kQuads * kVectors * 64), kQuads * kVectors * 64, std::uint8_t{5});
  const std::int32_t here = 0;
  const integer::TileKernels& tiles = integer::tile_kernels(set);
  const integer::TileUse use(tiles);
  const integer::DotRow row{.input = input.at_least(0),
                            .weight = weight.at_least(0),
                            .tap = &here,
                            .taps = 1,
                            .quads = kQuads,
                            .layout = tiles.layout(kQuads, kPixels),
                            .sum = sum.at_least(kPixels * kVectors * 16),
                            .pixels = kPixels};
  for (auto _ : state) {
    tiles.dot_row(row, kVectors);
    benchmark::ClobberMemory();
  }
  count_products(state, kQuads * 4 * kPixels * kVectors * 16);
}

void conv_output(benchmark::State& state) {
  const IntegerEngine engine;
  const Quantized x = codes(torch::relu(activation(1)), RangeGroup::kTensor), w = weight_codes();
  for (auto _ : state) benchmark::DoNotOptimize(engine.conv2d(x, w, kShape));
  count_products(state, static_cast<double>(kShape.macs() * kShape.input[0]));
}
BENCHMARK(conv_output)->Unit(benchmark::kMillisecond)->UseRealTime();

void conv_input_gradient(benchmark::State& state) {
  const IntegerEngine engine;
  const Quantized dy = codes(activation(2), RangeGroup::kTensor), w = weight_codes();
  for (auto _ : state) benchmark::DoNotOptimize(engine.conv2d_input_gradient(dy, w, kShape));
  count_products(state, static_cast<double>(kShape.macs() * kShape.input[0]));
}
BENCHMARK(conv_input_gradient)->Unit(benchmark::kMillisecond)->UseRealTime();

void conv_weight_gradient(benchmark::State& state) {
  const IntegerEngine engine;
  const Quantized dy = codes(activation(2), RangeGroup::kTensor);
  const Quantized x = codes(torch::relu(activation(1)), RangeGroup::kTensor);
  for (auto _ : state) benchmark::DoNotOptimize(engine.conv2d_weight_gradient(dy, x, kShape));
  count_products(state, static_cast<double>(kShape.macs() * kShape.input[0]));
}
BENCHMARK(conv_weight_gradient)->Unit(benchmark::kMillisecond)->UseRealTime();

cpu::ChannelMap channel_map() {
  return {KeptVector<float>(16, 0.1f), KeptVector<float>(16, 0.9f), KeptVector<float>(16, 0.2f), true};
}

void count_bytes(benchmark::State& state, std::int64_t bytes_per_element) {
  state.SetBytesProcessed(state.iterations() * 128 * 16 * 32 * 32 * bytes_per_element);
}

void statistics(benchmark::State& state) {
  const torch::Tensor x = activation(1);
  for (auto _ : state) benchmark::DoNotOptimize(cpu::ChannelMoments().of(x));
  count_bytes(state, 4);
}
BENCHMARK(statistics)->Name("norm/statistics")->Unit(benchmark::kMillisecond)->UseRealTime();

void normalise_to_codes(benchmark::State& state) {
  const torch::Tensor x = activation(1);
  const cpu::ChannelMap map = channel_map();
  const Range range = map.range(cpu::ChannelMoments().of(x));
  for (auto _ : state) benchmark::DoNotOptimize(cpu::encode_mapped(x, map, range, 8));
  count_bytes(state, 5);
}
BENCHMARK(normalise_to_codes)->Name("norm/to_codes")->Unit(benchmark::kMillisecond)->UseRealTime();

void normalise_and_add(benchmark::State& state) {
  const torch::Tensor x = activation(1), residual = activation(2);
  const cpu::ChannelMap map = channel_map();
  for (auto _ : state) benchmark::DoNotOptimize(cpu::map_and_add(x, map, residual));
  count_bytes(state, 12);
}
BENCHMARK(normalise_and_add)->Name("norm/add_residual")->Unit(benchmark::kMillisecond)->UseRealTime();

void normalise_backward(benchmark::State& state) {
  const torch::Tensor x = activation(1), dy = activation(2);
  const cpu::ChannelMap map = channel_map();
  const KeptVector<float> inverse(16, 1.0f), max_deviation(16, 8.0f);
  for (auto _ : state)
    benchmark::DoNotOptimize(cpu::MapBackward(x, map, {inverse, max_deviation}, {}).of(dy, false));
  count_bytes(state, 20);
}
BENCHMARK(normalise_backward)->Name("norm/backward")->Unit(benchmark::kMillisecond)->UseRealTime();

// Products of 16 bits: 36 of them stand for 144 of bytes.
void pair_tile(benchmark::State& state, integer::InstructionSet set) {
  constexpr std::int64_t kPairs = 32, kRows = 12;
  constexpr int kVectors = 4;
  Scratch<std::int16_t> input, weight;
  Scratch<std::int32_t> sum;
  constexpr std::int64_t kInputs = kPairs * kRows * integer::kPair;
  constexpr std::int64_t kWeights = kPairs * kVectors * integer::kPairVector;
  std::fill_n(input.at_least(kInputs), kInputs, std::int16_t{300});
  std::fill_n(weight.at_least(kWeights), kWeights, std::int16_t{-500});
  const integer::PairRows rows{.input = input.get(),
                               .row_step = kPairs * integer::kPair,
                               .pair_step = integer::kPair,
                               .weight = weight.get(),
                               .pairs = kPairs,
                               .rows = kRows,
                               .sum = sum.at_least(kRows * kVectors * integer::kLanes)};
  for (auto _ : state) {
    integer::tile_kernels(set).winograd.pair_rows(rows, kVectors);
    benchmark::ClobberMemory();
  }
  count_products(state, kPairs * integer::kPair * kRows * kVectors * integer::kLanes);
}

// A window's 36 points, 32 channels; and sixteen outputs from 36 points, sixteen channels.
void transform(benchmark::State& state, integer::InstructionSet set) {
  const integer::WinogradKernels& kernels = integer::tile_kernels(set).winograd;
  const std::vector<std::uint8_t> codes(integer::kPoints * 64, 7);
  const std::uint8_t* pixels[integer::kPoints];
  for (std::size_t i = 0; i < integer::kPoints; ++i) pixels[i] = codes.data() + i * 64;
  Scratch<std::int16_t> points;
  const std::int64_t step = integer::point_step(integer::kPairVector);
  points.reserve(integer::kPoints * step);
  for (auto _ : state) {
    kernels.window(pixels, 0, 3, points.get(), step);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * integer::kPairVector);
}

void restore(benchmark::State& state, integer::InstructionSet set) {
  const integer::WinogradKernels& kernels = integer::tile_kernels(set).winograd;
  Scratch<std::int32_t> sums, outputs;
  const std::int64_t step = integer::sum_step(integer::kLanes);
  std::fill_n(sums.at_least(integer::kPoints * step), integer::kPoints * step, 576);
  outputs.reserve(integer::kTile * integer::kTile * integer::kLanes);
  for (auto _ : state) {
    kernels.tile_sums({sums.get(), step}, false, outputs.get(), integer::kTile * integer::kLanes,
                      integer::kLanes);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * integer::kLanes);
}

[[maybe_unused]] const bool registered = [] {
  for (const integer::InstructionSet set : integer::instruction_sets()) {
    benchmark::RegisterBenchmark(("pair_tile/" + integer::instruction_set_name(set)).c_str(),
                                 [set](benchmark::State& state) { pair_tile(state, set); });
    benchmark::RegisterBenchmark(("winograd/window/" + integer::instruction_set_name(set)).c_str(),
                                 [set](benchmark::State& state) { transform(state, set); });
    benchmark::RegisterBenchmark(("winograd/outputs/" + integer::instruction_set_name(set)).c_str(),
                                 [set](benchmark::State& state) { restore(state, set); });
    benchmark::RegisterBenchmark(("tile/" + integer::instruction_set_name(set)).c_str(),
                                 [set](benchmark::State& state) { tile(state, set); });
  }
  return true;
}();

}  // namespace
}  // namespace lowtide
