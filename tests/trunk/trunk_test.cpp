// What every engine has to pass: trunks of all geometries, each pass against double precision, whole steps against autograd
// and against the reference, with noise.
#include "lowtide/trunk/trunk.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>

#include <algorithm>
#include <map>
#include <string>

#include "lowtide/engine/integer.h"
#include "lowtide/tasks/setup.h"
#include "tests/testing.h"
#include "tests/trunk/broken_engine.h"
#include "tests/trunk/checked_engine.h"

namespace lowtide {
namespace {

// What the input's numbers are: drawn, or all the same, so that their range is 0.
enum class InputValues { kDrawn, kConstant };

struct Geometry {
  std::string name;
  std::vector<ConvBlockOptions> blocks;
  std::vector<std::int64_t> input;  // N, C, H, W
  std::vector<std::string> rules = {};
  bool frozen = false;
  InputValues values = InputValues::kDrawn;
};

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

const std::vector<Geometry> kGeometries{
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
    {"DepthwiseStrided", {inverted_residual(16, 32, 4, 2), inverted_residual(32, 32, 1, 1)}, {4, 16, 13, 7}},
    {"DepthwiseOnePixel", {inverted_residual(16, 16, 2, 2), inverted_residual(16, 16, 2, 1)}, {9, 16, 1, 1}},
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

// Some blocks and their trunk, with parameters drawn from a seed.
struct Network : torch::nn::Module {
  Network(const Geometry& geometry, std::uint64_t seed) {
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

  static void draw(const std::string& name, torch::Tensor value, std::uint64_t seed) {
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

  std::vector<ConvBlock> blocks;
  Trunk trunk;
};

torch::Tensor input_of(const Geometry& geometry, std::uint64_t seed) {
  torch::Tensor x = normal(geometry.input, 100 + seed) + 0.5;
  if (geometry.values == InputValues::kConstant) x.fill_(0.75);
  return x.contiguous(torch::MemoryFormat::ChannelsLast);
}

struct Setting {
  std::shared_ptr<const Engine> engine;
  torch::Device device = torch::kCPU;
  Bits bits{8, 8};
  bool stochastic = true, bifurcate = false, recompute = false;
  std::uint64_t seed = 0;
};

using Tensors = std::map<std::string, torch::Tensor>;

// All that a step gives, by name: the output, every gradient, every buffer.
Tensors step(const Geometry& geometry, const Setting& setting) {
  Network network(geometry, 1000 * setting.seed);
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

void expect_same(const Tensors& actual, const Tensors& expected) {
  for (const auto& [name, value] : expected) EXPECT_TRUE(same(actual.at(name), value)) << name;
}

// An engine on a device; `integer` with the machine's best instructions, or in plain loops as on a machine without any.
struct Target {
  std::string engine, device = "cpu";
  bool plain_loops = false;

  std::shared_ptr<const Engine> make() const {
    if (plain_loops) return std::make_shared<IntegerEngine>(integer::InstructionSet::kGeneric);
    return make_engine(engine);
  }
  std::string name() const { return engine + (plain_loops ? "InPlainLoops" : ""); }
};

class TrunkConformance : public testing::TestWithParam<std::tuple<Target, Geometry>> {
 protected:
  void SetUp() override {
    if (device_.is_cpu()) return;
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA device, or a build without CUDA";
    allow_tf32(false);  // as the program has it
    at::globalContext().setDeterministicCuDNN(true);
  }

  const std::shared_ptr<const Engine> engine_ = std::get<0>(GetParam()).make();
  const torch::Device device_ = std::get<0>(GetParam()).device;
  const Geometry& geometry_ = std::get<1>(GetParam());
};

class TrunkAgainstAutograd : public TrunkConformance {};
class TrunkAgainstReference : public TrunkConformance {};

constexpr Bits kAllBits[] = {{8, 8}, {4, 3}, {8, 0}, {12, 8}, {0, 0}};

TEST_P(TrunkConformance, EveryPassIsThatOfDoublePrecision) {
  int stages = 0;
  for (const ConvBlockOptions& block : geometry_.blocks)
    stages += static_cast<int>(block.convs.size()) + (block.projection ? 1 : 0);
  for (const Bits bits : kAllBits) {
    for (const bool bifurcate : {false, true}) {
      SCOPED_TRACE(testing::Message()
                   << bits.forward << "/" << bits.backward << " bits" << (bifurcate ? ", bifurcated" : ""));
      for (const bool shows_outputs : {false, true}) {
        const auto checked = std::make_shared<CheckedEngine>(engine_, shows_outputs);
        step(geometry_, {.engine = checked, .device = device_, .bits = bits, .bifurcate = bifurcate});
        EXPECT_EQ(checked->stages_checked(), stages);
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(TrunkConformance, EvaluationUsesRunningStatisticsAndRanges) {
  Network network(geometry_, 3);
  const auto execution = execution_at({8, 8});
  execution->engine = std::make_shared<CheckedEngine>(engine_);
  attach_layers(network, execution, LayerRules(geometry_.rules));
  network.to(device_);
  const torch::Tensor x = input_of(geometry_, 0).to(device_);
  for (int i = 0; i < 3; ++i) network.trunk.forward(x);
  network.eval();
  Tensors before;
  for (const auto& item : network.named_buffers()) before[item.key()] = item.value().clone();
  const torch::NoGradGuard no_grad;
  const torch::Tensor y = network.trunk.forward(x);
  EXPECT_TRUE(y.isfinite().all().item<bool>());
  for (const auto& item : network.named_buffers()) EXPECT_TRUE(same(item.value(), before[item.key()]));
}

// The blocks in libtorch's own words, for autograd.
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

bool is_step_of_autograd(const Geometry& geometry, const Setting& setting, std::string& differs) {
  Network network(geometry, 1000 * setting.seed);
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

// With few bits hardly a number lies on the border of two codes, where the last bit of a sum decides: of some ten thousand
// numbers, off by 1e-6 of their range, with 15 borders, one in seven steps. (Codes of 12 bits have more borders, but move by
// 2e-4 there.) So most steps agree, gradients and all. With any other noise none would: it decides a third of the codes
// of 3 bits. The tolerance is between what one code and what other noise makes of a weight gradient, a sum of 3,200 terms that
// deviate by a quarter of a range, with elements of up to 3.5 of the sum's deviations. A code on the other side, a fifteenth of
// a range, is 1/15 / (3.5·√3200/4) = 1.3e-3 of it. A third of the errors' codes, off by a seventh, is √(3200/3)/7 / (3.5·√3200/4) =
// 9e-2.
constexpr double kStepTolerance = 1e-3;

constexpr int kReferenceSteps = 9;

// How many of so many steps are those of the reference.
int steps_like_reference(const Geometry& geometry, const std::shared_ptr<const Engine>& engine,
                         torch::Device device, std::string& differences) {
  int alike = 0;
  for (std::uint64_t seed = 0; seed < kReferenceSteps; ++seed) {
    const Tensors expected =
        step(geometry, {.engine = make_engine("simulated"), .bits = {4, 3}, .seed = seed});
    const Tensors actual = step(geometry, {.engine = engine, .device = device, .bits = {4, 3}, .seed = seed});
    bool all = true;
    for (const auto& [name, value] : expected) {
      const testing::AssertionResult close = close_to(actual.at(name), value, kStepTolerance);
      if (!close && all) differences += name + " " + close.message() + "\n";
      all &= static_cast<bool>(close);
    }
    alike += all ? 1 : 0;
  }
  return alike;
}

TEST_P(TrunkAgainstReference, AStepIsTheSame) {
  std::string differences;
  const int alike = steps_like_reference(geometry_, engine_, device_, differences);
  RecordProperty("alike", alike);
  EXPECT_GE(alike, kReferenceSteps / 2 + 1) << differences;
}

TEST_P(TrunkConformance, RecomputingChangesNoBit) {
  for (const Bits bits : kAllBits) {
    expect_same(step(geometry_, {.engine = engine_, .device = device_, .bits = bits, .recompute = true}),
                step(geometry_, {.engine = engine_, .device = device_, .bits = bits}));
  }
}

TEST_P(TrunkConformance, TheNumberOfThreadsDoesNotMatter) {
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const Tensors one = step(geometry_, {.engine = engine_, .device = device_});
  for (const int threads : {2, 3}) {
    at::set_num_threads(threads);
    expect_same(step(geometry_, {.engine = engine_, .device = device_}), one);
  }
  at::set_num_threads(before);
}

std::string name_of(const testing::TestParamInfo<TrunkConformance::ParamType>& instance) {
  const auto& [target, geometry] = instance.param;
  return target.name() + geometry.name;
}

std::vector<Target> on_a_cpu() {
  return {{.engine = "simulated"}, {.engine = "integer"}, {.engine = "integer", .plain_loops = true}};
}

std::vector<Target> on_a_cpu_but_the_reference() {
  std::vector<Target> targets = on_a_cpu();
  std::erase_if(targets, [](const Target& target) { return target.engine == "simulated"; });
  return targets;
}

// `cuda` in builds that have it.
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

INSTANTIATE_TEST_SUITE_P(Cpu, TrunkConformance,
                         testing::Combine(testing::ValuesIn(on_a_cpu()), testing::ValuesIn(kGeometries)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Cpu, TrunkAgainstAutograd,
                         testing::Combine(testing::ValuesIn(on_a_cpu()), testing::ValuesIn(kGeometries)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Cpu, TrunkAgainstReference,
                         testing::Combine(testing::ValuesIn(on_a_cpu_but_the_reference()),
                                          testing::ValuesIn(kGeometries)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Cuda, TrunkConformance,
                         testing::Combine(testing::ValuesIn(on_cuda()), testing::ValuesIn(kGeometries)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Cuda, TrunkAgainstAutograd,
                         testing::Combine(testing::ValuesIn(on_cuda()), testing::ValuesIn(kGeometries)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Cuda, TrunkAgainstReference,
                         testing::Combine(testing::ValuesIn(on_cuda()), testing::ValuesIn(kGeometries)),
                         name_of);

// The checks above can fail: an engine with one fault passes neither the comparison of single passes, which tells what is wrong, nor
// that of whole steps.
struct KnownFault {
  std::string name;
  Fault fault;
  std::string noticed_as;  // by CheckedEngine
};

void PrintTo(const KnownFault& fault, std::ostream* out) { *out << fault.name; }

class TrunkSuiteCanFail : public testing::TestWithParam<KnownFault> {};

const Geometry& faulty_geometry() {  // strided, with a projection and an identity
  return *std::find_if(kGeometries.begin(), kGeometries.end(),
                       [](const Geometry& geometry) { return geometry.name == "BasicStrided"; });
}

TEST_P(TrunkSuiteCanFail, InSinglePasses) {
  const auto checked = std::make_shared<CheckedEngine>(std::make_shared<BrokenEngine>(GetParam().fault));
  testing::TestPartResultArray failures;
  {
    const testing::ScopedFakeTestPartResultReporter reporter(
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ALL_THREADS, &failures);
    step(faulty_geometry(), {.engine = checked});
  }
  ASSERT_GT(failures.size(), 0);
  for (int i = 0; i < failures.size(); ++i) {
    const std::string message = failures.GetTestPartResult(i).message();
    if (message.find(GetParam().noticed_as) != message.npos) return;
  }
  FAIL() << "noticed, but as something else: " << failures.GetTestPartResult(0).message();
}

TEST_P(TrunkSuiteCanFail, InWholeSteps) {
  std::string differences;
  EXPECT_EQ(steps_like_reference(faulty_geometry(), std::make_shared<BrokenEngine>(GetParam().fault),
                                 torch::kCPU, differences),
            0);
}

INSTANTIATE_TEST_SUITE_P(
    Faults, TrunkSuiteCanFail,
    testing::ValuesIn<KnownFault>({{"OtherNoise", Fault::kOtherNoise, "error on another side"},
                                   {"MissingMask", Fault::kMissingMask, "gradient of the norm's bias"},
                                   {"SwappedScales", Fault::kSwappedScales, "gradient of the residual"},
                                   {"StillStatistics", Fault::kStillStatistics, "running mean"},
                                   {"LostGradient", Fault::kLostGradient, "gradient of the norm's"}}),
    [](const testing::TestParamInfo<KnownFault>& fault) { return fault.param.name; });

TEST(Trunk, ServesOneBackwardPass) {
  const Geometry& geometry = kGeometries[0];
  Network network(geometry, 1);
  attach_layers(network, execution_at({8, 8}), LayerRules(std::vector<std::string>{}));
  const torch::Tensor loss = network.trunk.forward(input_of(geometry, 0)).value.sum();
  loss.backward({}, /*retain_graph=*/true);
  EXPECT_THROW(loss.backward(), std::exception);
}

// The gradient that a trunk is given may have other readers.
TEST(Trunk, LeavesTheGradientAlone) {
  for (const Target& target : available()) {
    for (const Geometry& geometry : kGeometries) {
      Network network(geometry, 1);
      const auto execution = execution_at({8, 8});
      execution->engine = target.make();
      attach_layers(network, execution, LayerRules(std::vector<std::string>{}));
      network.to(torch::Device(target.device));
      const torch::Tensor y = network.trunk.forward(input_of(geometry, 0).to(target.device).requires_grad_());
      const torch::Tensor gradient =
          normal(y.sizes(), 3).contiguous(torch::MemoryFormat::ChannelsLast).to(target.device);
      const torch::Tensor before = gradient.clone();
      y.backward(gradient);
      EXPECT_TRUE(same(gradient, before)) << target.name() << " " << geometry.name;
    }
  }
}

// What is not finite stays so: the training loop looks for it.
TEST(Trunk, NotFiniteInputGivesNoFiniteOutput) {
  for (const Target& target : available()) {
    const Geometry& geometry = kGeometries[2];
    Network network(geometry, 1);
    const auto execution = execution_at({8, 8});
    execution->engine = target.make();
    attach_layers(network, execution, LayerRules(std::vector<std::string>{}));
    network.to(torch::Device(target.device));
    torch::Tensor x = input_of(geometry, 0);
    x[1][2][3][4] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_FALSE(network.trunk.forward(x.to(target.device)).value.isfinite().any().item<bool>())
        << target.name();
  }
}

// Running statistics are plain means over the batches while they are re-estimated.
TEST(Trunk, ReEstimationGivesPlainMeans) {
  const Geometry& geometry = kGeometries[0];
  Network network(geometry, 1);
  attach_layers(network, execution_at({0, 0}), LayerRules(std::vector<std::string>{}));
  ConvStage& stage = network.blocks[0].stages[0];
  const torch::NoGradGuard no_grad;
  const auto batch = [&](int i) { return normal(geometry.input, 50 + i) * (i + 1) + i; };
  network.trunk.forward(batch(9));  // what was before does not count
  stage.norm->start_re_estimation();
  torch::Tensor mean = torch::zeros({16}, torch::kDouble), variance = mean.clone();
  for (int i = 0; i < 4; ++i) {
    const torch::Tensor y =
        torch::conv2d(batch(i), stage.conv->weight, {}, 1, /*padding=*/1).to(torch::kDouble);
    network.trunk.forward(batch(i));
    mean += y.mean({0, 2, 3}) / 4;
    variance += y.var({0, 2, 3}, /*unbiased=*/true) / 4;
  }
  network.eval();
  network.trunk.forward(batch(8));  // an evaluation in between is no batch
  network.train();
  EXPECT_TRUE(close_to(stage.norm->running_mean, mean, 1e-5));
  EXPECT_TRUE(close_to(stage.norm->running_variance, variance, 1e-5));
  stage.norm->end_re_estimation();
  network.trunk.forward(batch(0));  // moves by a tenth again
  const torch::Tensor y =
      torch::conv2d(batch(0), stage.conv->weight, {}, 1, /*padding=*/1).to(torch::kDouble);
  EXPECT_TRUE(close_to(stage.norm->running_mean, 0.9 * mean + 0.1 * y.mean({0, 2, 3}), 1e-5));
}

}  // namespace
}  // namespace lowtide
