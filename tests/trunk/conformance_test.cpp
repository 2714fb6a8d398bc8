// What every engine has to pass: each pass of a trunk against double precision, and whole steps against the reference, with noise.
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include "tests/trunk/broken_engine.h"
#include "tests/trunk/checked_engine.h"
#include "tests/trunk/trunks.h"

namespace lowtide {
namespace {

class TrunkConformance : public EachTrunk {};
class TrunkAgainstReference : public EachTrunk {};

void expect_same(const Tensors& actual, const Tensors& expected) {
  for (const auto& [name, value] : expected) EXPECT_TRUE(same(actual.at(name), value)) << name;
}

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
        step_of(geometry_, {.engine = checked, .device = device_, .bits = bits, .bifurcate = bifurcate});
        EXPECT_EQ(checked->stages_checked(), stages);
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(TrunkConformance, EvaluationUsesRunningStatisticsAndRanges) {
  TrunkNetwork network(geometry_, 3);
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

TEST_P(TrunkConformance, RecomputingChangesNoBit) {
  for (const Bits bits : kAllBits) {
    expect_same(step_of(geometry_, {.engine = engine_, .device = device_, .bits = bits, .recompute = true}),
                step_of(geometry_, {.engine = engine_, .device = device_, .bits = bits}));
  }
}

TEST_P(TrunkConformance, TheNumberOfThreadsDoesNotMatter) {
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const Tensors one = step_of(geometry_, {.engine = engine_, .device = device_});
  for (const int threads : {2, 3}) {
    at::set_num_threads(threads);
    expect_same(step_of(geometry_, {.engine = engine_, .device = device_}), one);
  }
  at::set_num_threads(before);
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
        step_of(geometry, {.engine = make_engine("simulated"), .bits = {4, 3}, .seed = seed});
    const Tensors actual =
        step_of(geometry, {.engine = engine, .device = device, .bits = {4, 3}, .seed = seed});
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

INSTANTIATE_TEST_SUITE_P(Cpu, TrunkConformance, each_of(on_a_cpu()), name_of);
INSTANTIATE_TEST_SUITE_P(Cuda, TrunkConformance, each_of(on_cuda()), name_of);
INSTANTIATE_TEST_SUITE_P(Cpu, TrunkAgainstReference, each_of(on_a_cpu_but_the_reference()), name_of);
INSTANTIATE_TEST_SUITE_P(Cuda, TrunkAgainstReference, each_of(on_cuda()), name_of);

// The checks above can fail: an engine with one fault passes neither the comparison of single passes, which tells what is wrong, nor
// that of whole steps.
struct KnownFault {
  std::string name;
  Fault fault;
  std::string noticed_as;  // by CheckedEngine
};

void PrintTo(const KnownFault& fault, std::ostream* out) { *out << fault.name; }

class TrunkSuiteCanFail : public testing::TestWithParam<KnownFault> {};

// With a projection, a stride and an identity.
const Geometry& faulty_geometry() { return geometry_named("BasicStrided"); }

TEST_P(TrunkSuiteCanFail, InSinglePasses) {
  const auto checked = std::make_shared<CheckedEngine>(std::make_shared<BrokenEngine>(GetParam().fault));
  testing::TestPartResultArray failures;
  {
    const testing::ScopedFakeTestPartResultReporter reporter(
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ALL_THREADS, &failures);
    step_of(faulty_geometry(), {.engine = checked});
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

}  // namespace
}  // namespace lowtide
