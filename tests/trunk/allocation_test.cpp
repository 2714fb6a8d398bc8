// A step of a trunk whose shapes stay asks for no more kept memory after the second one, and the heap for headers and short
// lists alone. Every allocation of the process is seen here, whichever thread and library makes it: so this is a program of its
// own.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>

#include "lowtide/base/kept_memory.h"
#include "lowtide/base/tensor_memory.h"
#include "lowtide/trunk/trunk.h"
#include "tests/testing.h"

namespace {

std::atomic<bool> counts{false};
std::atomic<std::size_t> largest{0};  // of the heap's blocks

void* seen(std::size_t bytes, void* memory) {
  if (counts) {
    std::size_t before = largest;
    while (bytes > before && !largest.compare_exchange_weak(before, bytes)) {
    }
  }
  return memory;
}

}  // namespace

// In place of the C library's, which operator new calls too.
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t bytes) { return seen(bytes, __libc_malloc(bytes)); }
void* calloc(std::size_t count, std::size_t bytes) {
  return seen(count * bytes, __libc_calloc(count, bytes));
}
void* realloc(void* memory, std::size_t bytes) { return seen(bytes, __libc_realloc(memory, bytes)); }
void* memalign(std::size_t alignment, std::size_t bytes) {
  return seen(bytes, __libc_memalign(alignment, bytes));
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  *memory = memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}
}

namespace lowtide {
namespace {

struct Case {
  std::string engine;
  Bits bits{8, 8};
  bool recompute = false;
};

class TrunkAllocation : public testing::TestWithParam<std::tuple<Case, int>> {};

// Every kind of block.
struct Network : torch::nn::Module {
  Network() {
    const auto modules = register_module("blocks", torch::nn::ModuleList());
    for (const ConvBlockOptions& options :
         {ConvBlockOptions{.convs = {{.in_channels = 3, .out_channels = 16, .kernel = 3, .padding = 1}}},
          basic_block(16, 16, 1), basic_block(16, 32, 2), basic_block(32, 32, 1), bottleneck(32, 8, 1),
          inverted_residual(32, 32, 6, 1), inverted_residual(32, 48, 6, 2),
          inverted_residual(48, 128, 14, 2)}) {
      trunk.append(push_block(*modules, options));
    }
  }

  Trunk trunk;
};

TEST_P(TrunkAllocation, NothingAfterTheSecondStep) {
  TensorMemory::install();
  const auto& [given, threads] = GetParam();
  at::set_num_threads(threads);
  Network network;
  const auto execution = execution_at(given.bits, /*stochastic=*/true);
  execution->engine = make_engine(given.engine);
  execution->recompute = given.recompute;
  attach_layers(network, execution, LayerRules());
  const torch::Tensor x = normal({20, 3, 32, 32}, 1).contiguous(torch::MemoryFormat::ChannelsLast);
  const torch::Tensor gradient = normal({20, 128, 4, 4}, 2).contiguous(torch::MemoryFormat::ChannelsLast);
  const auto step = [&] {
    network.zero_grad(/*set_to_none=*/true);
    const torch::Tensor y = network.trunk.forward(x);
    y.backward(gradient);
    ++execution->step;
  };
  // In the midst of the first step blocks are taken that stay: workers' scratch, what oneDNN made for each shape. In the second
  // the step's own lie around those, where all later ones find them again.
  for (int i = 0; i < 2; ++i) step();
  const std::int64_t kept = kept_bytes();
  largest = 0;
  counts = true;
  for (int i = 0; i < 10; ++i) step();
  counts = false;
  EXPECT_EQ(kept_bytes(), kept);
  // What is left are tensors' headers, autograd's nodes, and lists as long as the network, or as one layer's taps, rows or columns.
  // The longest is what autograd's node knows of its inputs, the trunk's and all parameters: 40 bytes for each of 61. None has
  // numbers for each channel: the widest layer's 672 floats would be longer. The heap gets them back within the step, and has
  // them for the next without the system.
  EXPECT_LE(largest.load(), sizeof(torch::autograd::VariableInfo) * (1 + network.parameters().size()));
}

std::string name_of(const testing::TestParamInfo<std::tuple<Case, int>>& test) {
  const auto& [given, threads] = test.param;
  return given.engine + std::to_string(given.bits.forward) + "Bits" + (given.recompute ? "Recompute" : "") +
         "At" + std::to_string(threads) + "Threads";
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* engine : {"integer", "simulated"}) {
    for (const Bits bits : {Bits{8, 8}, Bits{3, 8}}) {
      for (const bool recompute : {false, true})
        all.push_back({.engine = engine, .bits = bits, .recompute = recompute});
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(EnginesAndThreads, TrunkAllocation,
                         testing::Combine(testing::ValuesIn(cases()), testing::Values(1, 2, 3, 8)), name_of);

}  // namespace
}  // namespace lowtide
