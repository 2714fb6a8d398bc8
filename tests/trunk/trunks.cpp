#include "tests/trunk/trunks.h"

#include <torch/cuda.h>

#include <algorithm>

#include "lowtide/engine/integer.h"
#include "lowtide/tasks/setup.h"

namespace lowtide {
namespace {

ConvBlockOptions conv_block(const QuantConv2dOptions& conv) { return {.convs = {conv}}; }
const ConvBlockOptions kStem = conv_block({.in_channels = 3, .out_channels = 16, .kernel = 3, .padding = 1});
const ConvBlockOptions kWideStem =
    conv_block({.in_channels = 3, .out_channels = 8, .kernel = 7, .stride = 2, .padding = 3});

ConvBlockOptions depthwise_block(std::int64_t channels, std::int64_t stride) {
  return {.convs = {{.in_channels = channels,
                     .out_channels = channels,
                     .kernel = 3,
                     .stride = stride,
                     .padding = 1,
                     .groups = channels}},
          .adds_input = stride == 1};
}

void draw(const std::string& name, torch::Tensor value, std::uint64_t seed) {
  const bool of_norm = name.find("norm") != name.npos;
  if (name.ends_with("_variance")) value.copy_(uniform(value.sizes(), 0.5, 2, seed));
  if (name.ends_with("_mean")) value.copy_(0.2 * normal(value.sizes(), seed));
  if (name.ends_with(".weight") && of_norm) value.copy_(uniform(value.sizes(), 0.5, 1.5, seed));
  if (name.ends_with(".bias")) value.copy_(0.3 * normal(value.sizes(), seed));
  if (name.ends_with(".weight") && !of_norm) {
    const double fan_in = static_cast<double>(value.numel() / value.size(0));
    value.copy_(normal(value.sizes(), seed) / std::sqrt(fan_in));
  }
}

}  // namespace

const std::vector<Geometry>& geometries() {
  static const std::vector<Geometry> all{
      {"Stem", {kStem}, {8, 3, 12, 12}},
      {"WideStem", {kWideStem}, {4, 3, 15, 13}},
      {"Basic", {basic_block(16, 16, 1), basic_block(16, 16, 1)}, {8, 16, 20, 20}},
      {"BasicProjected", {basic_block(16, 24, 1), basic_block(24, 24, 1)}, {6, 16, 9, 9}},
      {"BasicStrided", {kStem, basic_block(16, 32, 2), basic_block(32, 32, 1)}, {8, 3, 16, 16}},
      {"Bottleneck", {bottleneck(32, 8, 1), bottleneck(32, 8, 1)}, {5, 32, 8, 8}},
      {"BottleneckStrided", {bottleneck(16, 12, 2), bottleneck(48, 12, 1)}, {6, 16, 11, 10}},
      {"Inverted", {inverted_residual(8, 8, 6, 1), inverted_residual(8, 8, 6, 1)}, {6, 8, 10, 10}},
      {"InvertedProjected", {inverted_residual(8, 12, 1, 1), inverted_residual(12, 12, 4, 1)}, {6, 8, 9, 7}},
      {"InvertedStrided", {inverted_residual(8, 16, 6, 2), inverted_residual(16, 16, 2, 1)}, {6, 8, 10, 10}},
      // Depthwise convolutions with as many channels as a GPU's kernels want.
      {"Depthwise", {inverted_residual(16, 16, 2, 1), inverted_residual(16, 16, 9, 1)}, {5, 16, 8, 8}},
      {"DepthwiseStrided",
       {inverted_residual(16, 32, 4, 2), inverted_residual(32, 32, 1, 1)},
       {4, 16, 13, 7}},
      {"DepthwiseOnePixel",
       {inverted_residual(16, 16, 2, 2), inverted_residual(16, 16, 2, 1)},
       {9, 16, 1, 1}},
      {"DepthwiseAlone",
       {depthwise_block(32, 1), depthwise_block(32, 1), depthwise_block(32, 2)},
       {3, 32, 6, 5}},
      {"DepthwiseFrozen", {inverted_residual(16, 16, 2, 1), depthwise_block(16, 1)}, {4, 16, 7, 6}, {}, true},
      {"DepthwiseBesideFp32",
       {inverted_residual(16, 16, 2, 1), inverted_residual(16, 16, 2, 1)},
       {4, 16, 6, 6},
       {"blocks.0.conv1=fp32", "blocks.1.conv3=fp32"}},
      {"Frozen", {kStem, basic_block(16, 32, 2), bottleneck(32, 8, 1)}, {5, 3, 14, 14}, {}, true},
      {"LayerInFp32",
       {kStem, basic_block(16, 16, 1), basic_block(16, 32, 2)},
       {6, 3, 10, 10},
       {"blocks.0.*=fp32", "blocks.1.conv2=fp32", "*.shortcut=fp32"}},
      {"LayerAt12Bits",
       {kStem, basic_block(16, 16, 1), basic_block(16, 32, 2)},
       {6, 3, 10, 10},
       {"blocks.0.conv1=12", "blocks.1.conv2=12", "blocks.2.shortcut=12"}},
      {"BitsOfTheirOwn",
       {kStem, basic_block(16, 16, 1), basic_block(16, 32, 2)},
       {6, 3, 10, 10},
       {"blocks.1.conv1=3", "blocks.2.conv1=5", "blocks.2.shortcut=7"}},
      // Whole images that a GPU keeps from one convolution to the next.
      {"SmallImages", {kStem, basic_block(16, 16, 1), basic_block(16, 16, 1)}, {5, 3, 16, 16}},
      {"SmallWideImages", {basic_block(64, 64, 1), basic_block(64, 64, 1)}, {3, 64, 8, 4}},
      {"NarrowImages", {basic_block(32, 32, 1)}, {2, 32, 128, 4}},
      {"SmallFrozen", {kStem, basic_block(16, 16, 1), basic_block(16, 16, 1)}, {4, 3, 8, 8}, {}, true},
      {"SmallImagesInFp32",
       {kStem, basic_block(16, 16, 1), basic_block(16, 16, 1)},
       {4, 3, 8, 8},
       {"blocks.1.conv2=fp32", "blocks.2.conv1=5"}},
      {"OneImage", {kStem, basic_block(16, 32, 2)}, {1, 3, 16, 16}},
      {"OddSizes", {kStem, basic_block(16, 19, 2), basic_block(19, 19, 1)}, {3, 3, 13, 7}},
      {"OnePixel", {conv_block({.in_channels = 5, .out_channels = 7}), basic_block(7, 7, 1)}, {9, 5, 1, 1}},
      {.name = "ConstantInput",
       .blocks = {kStem, basic_block(16, 16, 1)},
       .input = {4, 3, 8, 8},
       .values = InputValues::kConstant},
  };
  return all;
}

const Geometry& geometry_named(const std::string& name) {
  return *std::ranges::find(geometries(), name, &Geometry::name);
}

TrunkNetwork::TrunkNetwork(const Geometry& geometry, std::uint64_t seed) {
  const auto modules = register_module("blocks", torch::nn::ModuleList());
  for (ConvBlockOptions options : geometry.blocks) {
    options.frozen_norm = geometry.frozen;
    blocks.push_back(push_block(*modules, options));
    trunk.append(blocks.back());
  }
  const torch::NoGradGuard no_grad;
  for (auto& list : {named_parameters(), named_buffers()}) {
    for (const auto& item : list) draw(item.key(), item.value(), ++seed);
  }
}

torch::Tensor input_of(const Geometry& geometry, std::uint64_t seed) {
  torch::Tensor x = normal(geometry.input, 100 + seed) + 0.5;
  if (geometry.values == InputValues::kConstant) x.fill_(0.75);
  return x.contiguous(torch::MemoryFormat::ChannelsLast);
}

Tensors step_of(const Geometry& geometry, const StepSetting& setting) {
  TrunkNetwork network(geometry, 1000 * setting.seed);
  const auto execution = execution_at(setting.bits, setting.stochastic);
  execution->engine = setting.engine;
  execution->bifurcate = setting.bifurcate;
  execution->recompute = setting.recompute;
  execution->seed = setting.seed;
  attach_layers(network, execution, LayerRules(geometry.rules));
  network.to(setting.device);
  const torch::Tensor x = input_of(geometry, setting.seed).to(setting.device).requires_grad_();
  const torch::Tensor y = network.trunk.forward(x);
  y.backward(normal(y.sizes(), 7).contiguous(torch::MemoryFormat::ChannelsLast).to(setting.device));
  Tensors result{{"output", y.detach().cpu()}, {"gradient of the input", x.grad().cpu()}};
  for (const auto& item : network.named_parameters()) {
    result["gradient of " + item.key()] = item.value().grad().cpu();
  }
  for (const auto& item : network.named_buffers()) result[item.key()] = item.value().cpu();
  return result;
}

std::shared_ptr<const Engine> Target::make() const {
  if (plain_loops) return std::make_shared<IntegerEngine>(integer::InstructionSet::kGeneric);
  return make_engine(engine);
}

std::vector<Target> on_a_cpu() {
  return {{.engine = "simulated"}, {.engine = "integer"}, {.engine = "integer", .plain_loops = true}};
}

std::vector<Target> on_a_cpu_but_the_reference() {
  std::vector<Target> targets = on_a_cpu();
  std::erase_if(targets, [](const Target& target) { return target.engine == "simulated"; });
  return targets;
}

std::vector<Target> on_cuda() {
  std::vector<Target> targets{{.engine = "simulated", .device = "cuda"}};
  for (const std::string& name : engine_names()) {
    if (name == "cuda") targets.push_back({.engine = name, .device = "cuda"});
  }
  return targets;
}

std::vector<Target> available() {
  std::vector<Target> targets = on_a_cpu();
  if (torch::cuda::is_available())
    for (const Target& target : on_cuda()) targets.push_back(target);
  return targets;
}

void EachTrunk::SetUp() {
  if (device_.is_cpu()) return;
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA device, or a build without CUDA";
  allow_tf32(false);  // as the program has it
  at::globalContext().setDeterministicCuDNN(true);
}

std::string name_of(const testing::TestParamInfo<EachTrunk::ParamType>& instance) {
  const auto& [target, geometry] = instance.param;
  return target.name() + geometry.name;
}

}  // namespace lowtide
