// Whole steps of trunks without quantisation, by every engine, against autograd through libtorch's own layers in double precision.
#include <gtest/gtest.h>

#include "tests/trunk/trunks.h"

namespace lowtide {
namespace {

class TrunkAgainstAutograd : public EachTrunk {};

// The blocks in libtorch's own words.
torch::Tensor stage_of(const ConvStage& stage, const torch::Tensor& x, Tensors& leaves,
                       const std::string& name) {
  const auto leaf = [&](const char* kind, const torch::Tensor& parameter) {
    return leaves[name + kind] = parameter.detach().to(torch::kDouble).requires_grad_();
  };
  const auto& o = stage.conv->options;
  const torch::Tensor y =
      torch::conv2d(x, leaf(".conv", stage.conv->weight), {}, o.stride, o.padding, 1, o.groups);
  const bool uses_batch = !stage.norm->options.frozen;
  return torch::batch_norm(y, leaf(".weight", stage.norm->weight), leaf(".bias", stage.norm->bias),
                           stage.norm->running_mean.to(torch::kDouble),
                           stage.norm->running_variance.to(torch::kDouble), uses_batch, 0.1, kNormEpsilon,
                           false);
}

torch::Tensor block_of(const ConvBlock& block, const torch::Tensor& x, Tensors& leaves,
                       const std::string& name) {
  torch::Tensor y = x;
  for (std::size_t i = 0; i < block.stages.size(); ++i) {
    y = stage_of(block.stages[i], y, leaves, name + "." + std::to_string(i));
    if (i + 1 < block.stages.size()) y = torch::relu(y);
  }
  if (block.adds_input) y = y + x;
  if (block.projection) y = y + stage_of(*block.projection, x, leaves, name + ".projection");
  return block.stages.back().relu ? torch::relu(y) : y;
}

// Float32 against double precision. A sum of n products is off by √n·2^-24 of its terms, and each of the stages, six at most,
// passes on what it was given. Outputs are sums of up to 576 products: 6·√576·2^-24 = 8.6e-6. Gradients have come back the same
// way, and weights' are sums over up to 3,200 pixels: 12·√3200·2^-24 = 4e-5.
constexpr double kOutputTolerance = 1e-5, kGradientTolerance = 5e-5;

// Whether the gradients of a stage's parameters are those of its leaves.
bool has_gradients(const ConvStage& stage, const Tensors& leaves, const std::string& name,
                   std::string& differs) {
  bool all = true;
  const auto compare = [&](const char* kind, const torch::Tensor& parameter) {
    if (!parameter.requires_grad()) return;
    const testing::AssertionResult close =
        close_to(parameter.grad().cpu(), leaves.at(name + kind).grad(), kGradientTolerance);
    if (!close && all) differs += name + kind + " " + close.message() + "\n";
    all &= static_cast<bool>(close);
  };
  compare(".conv", stage.conv->weight);
  compare(".weight", stage.norm->weight);
  compare(".bias", stage.norm->bias);
  return all;
}

bool is_step_of_autograd(const Geometry& geometry, const StepSetting& setting, std::string& differs) {
  TrunkNetwork network(geometry, 1000 * setting.seed);
  const auto execution = execution_at({0, 0});
  execution->engine = setting.engine;
  attach_layers(network, execution, LayerRules(std::vector<std::string>{}));
  const torch::Tensor input = input_of(geometry, setting.seed);
  const torch::Tensor wide = input.to(torch::kDouble).requires_grad_();
  const torch::Tensor x = input.to(setting.device).requires_grad_();
  Tensors leaves;
  torch::Tensor expected = wide;
  for (std::size_t i = 0; i < network.blocks.size(); ++i)
    expected = block_of(network.blocks[i], expected, leaves, std::to_string(i));
  network.to(setting.device);
  const torch::Tensor y = network.trunk.forward(x), error = normal(y.sizes(), 9);
  EXPECT_TRUE(close_to(y.cpu(), expected, kOutputTolerance));
  y.backward(error.to(setting.device));
  expected.backward(error.to(torch::kDouble));
  bool all = static_cast<bool>(close_to(x.grad().cpu(), wide.grad(), kGradientTolerance));
  for (std::size_t i = 0; i < network.blocks.size(); ++i) {
    const ConvBlock& block = network.blocks[i];
    const std::string name = std::to_string(i);
    for (std::size_t s = 0; s < block.stages.size(); ++s)
      all &= has_gradients(block.stages[s], leaves, name + "." + std::to_string(s), differs);
    if (block.projection) all &= has_gradients(*block.projection, leaves, name + ".projection", differs);
  }
  return all;
}

// Where a number lies so close to 0 that its sign is a matter of rounding, ReLU lets another gradient pass: of some ten
// thousand numbers off by 1e-6, once in a hundred steps. Most have none.
TEST_P(TrunkAgainstAutograd, AStepWithoutQuantisationIsTheSame) {
  constexpr int kSteps = 5;
  int alike = 0;
  std::string differs;
  for (std::uint64_t seed = 0; seed < kSteps; ++seed)
    alike +=
        is_step_of_autograd(geometry_, {.engine = engine_, .device = device_, .seed = seed}, differs) ? 1 : 0;
  RecordProperty("alike", alike);
  EXPECT_GE(alike, kSteps / 2 + 1) << differs;
}

INSTANTIATE_TEST_SUITE_P(Cpu, TrunkAgainstAutograd, each_of(on_a_cpu()), name_of);
INSTANTIATE_TEST_SUITE_P(Cuda, TrunkAgainstAutograd, each_of(on_cuda()), name_of);

}  // namespace
}  // namespace lowtide
