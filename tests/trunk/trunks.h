#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "lowtide/trunk/trunk.h"
#include "tests/testing.h"

// Trunks of all geometries, and the engines that compute them: what the tests of this folder go through.

namespace lowtide {

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

const std::vector<Geometry>& geometries();
const Geometry& geometry_named(const std::string& name);

// Some blocks and their trunk, with parameters drawn from a seed.
struct TrunkNetwork : torch::nn::Module {
  TrunkNetwork(const Geometry& geometry, std::uint64_t seed);

  std::vector<ConvBlock> blocks;
  Trunk trunk;
};

torch::Tensor input_of(const Geometry& geometry, std::uint64_t seed);

struct StepSetting {
  std::shared_ptr<const Engine> engine;
  torch::Device device = torch::kCPU;
  Bits bits{8, 8};
  bool stochastic = true, bifurcate = false, recompute = false;
  std::uint64_t seed = 0;
};

using Tensors = std::map<std::string, torch::Tensor>;

// All that a step gives, by name: the output, every gradient, every buffer.
Tensors step_of(const Geometry& geometry, const StepSetting& setting);

// An engine on a device; `integer` with the machine's best instructions, or in plain loops as on a machine without any.
struct Target {
  std::string engine, device = "cpu";
  bool plain_loops = false;

  std::shared_ptr<const Engine> make() const;
  std::string name() const { return engine + (plain_loops ? "InPlainLoops" : ""); }
};

std::vector<Target> on_a_cpu();
std::vector<Target> on_a_cpu_but_the_reference();
std::vector<Target> on_cuda();  // `cuda` in builds that have it
std::vector<Target> available();

class EachTrunk : public testing::TestWithParam<std::tuple<Target, Geometry>> {
 protected:
  void SetUp() override;

  const std::shared_ptr<const Engine> engine_ = std::get<0>(GetParam()).make();
  const torch::Device device_ = std::get<0>(GetParam()).device;
  const Geometry& geometry_ = std::get<1>(GetParam());
};

std::string name_of(const testing::TestParamInfo<EachTrunk::ParamType>& instance);

// Each of them with every geometry.
inline auto each_of(const std::vector<Target>& targets) {
  return testing::Combine(testing::ValuesIn(targets), testing::ValuesIn(geometries()));
}

}  // namespace lowtide
