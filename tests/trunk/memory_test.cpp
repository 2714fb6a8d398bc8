// With constant shapes a step of a trunk finds all its memory where the step before it left it.
#include <gtest/gtest.h>
#include <malloc.h>

#include "lowtide/trunk/trunk.h"
#include "tests/testing.h"

namespace lowtide {
namespace {

// Bytes that the allocator has from the system.
std::size_t held() {
  const struct mallinfo2 info = mallinfo2();
  return info.arena + info.hblkhd;
}

class TrunkMemory : public testing::TestWithParam<std::string> {};

TEST_P(TrunkMemory, AStepTakesNothingFromTheSystemAfterTheFirst) {
  mallopt(M_MMAP_THRESHOLD, -1);  // as the program has it: what is given back stays in the heap
  mallopt(M_TRIM_THRESHOLD, -1);
  torch::nn::Module owner("owner");
  const auto modules = owner.register_module("blocks", torch::nn::ModuleList());
  Trunk trunk;
  for (const ConvBlockOptions& block :
       {basic_block(16, 16, 1), basic_block(16, 32, 2), basic_block(32, 32, 1)})
    trunk.append(push_block(*modules, block));
  const auto execution = execution_at({8, 8}, /*stochastic=*/true);
  execution->engine = make_engine(GetParam());
  attach_layers(owner, execution, LayerRules(std::vector<std::string>{}));
  const torch::Tensor x =
      normal({32, 16, 32, 32}, 1).contiguous(torch::MemoryFormat::ChannelsLast).requires_grad_();
  const auto step = [&] {
    owner.zero_grad();
    x.mutable_grad().reset();
    trunk.forward(x).value.sum().backward();
    ++execution->step;
  };
  step();
  const std::size_t after_the_first = held();
  EXPECT_GT(after_the_first, 8u << 20) << "some of its activations";
  for (int i = 0; i < 4; ++i) step();
  EXPECT_EQ(held(), after_the_first);
}

INSTANTIATE_TEST_SUITE_P(Engines, TrunkMemory, testing::ValuesIn(engine_names()),
                         [](const auto& instance) { return instance.param; });

}  // namespace
}  // namespace lowtide
