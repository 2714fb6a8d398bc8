#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lowtide/models/resnet_trunk.h"

namespace lowtide {

// What a detector says of the anchors of each image.
struct DetectorOutput {
  at::Tensor probabilities;  // N × A × classes
  at::Tensor deltas;         // N × A × 4, see decode_boxes
};

// Five maps of equal width from the last three groups of a trunk (Lin et al. 2017, footnote 2): the coarser ones are
// doubled in size and added to the finer; two more are strided convolutions of the last.
class FeaturePyramidImpl : public torch::nn::Module {
 public:
  static constexpr int kLevels = 5;

  FeaturePyramidImpl(const ResNetTrunk& trunk, std::int64_t width);
  std::array<Activation, kLevels> forward(const std::array<Activation, ResNetTrunk::kGroups>& groups);

  static constexpr std::size_t kLateral = 3;  // levels that come from a group of their own
  const std::array<QuantConv2d, kLateral>& lateral() const { return lateral_; }
  const std::array<QuantConv2d, kLevels>& output() const { return output_; }

 private:
  std::array<QuantConv2d, kLateral> lateral_;
  std::array<QuantConv2d, kLevels> output_;
};
TORCH_MODULE(FeaturePyramid);

// Four 3×3 convolutions with ReLU, then one that gives `values` numbers for each anchor of a position. It serves all
// levels.
class DetectionHeadImpl : public torch::nn::Module {
 public:
  DetectionHeadImpl(std::int64_t width, std::int64_t values);
  at::Tensor forward(const Activation& level);  // N × (positions · anchors) × values

  QuantConv2d output{nullptr};

  static constexpr std::size_t kConvolutions = 4;
  const std::array<QuantConv2d, kConvolutions>& convolutions() const { return convolutions_; }
  std::int64_t values() const { return values_; }

 private:
  std::array<QuantConv2d, kConvolutions> convolutions_;
  std::int64_t values_;
};
TORCH_MODULE(DetectionHead);

// RetinaNet (Lin et al. 2017) with a ResNet of 18, 34, 50 or 101 layers. Every convolution is quantised; batch norm is
// frozen, or not.
class RetinaNet : public torch::nn::Module {
 public:
  RetinaNet(int layers, std::int64_t classes, bool frozen_norm = true);

  // Images N × 3 × H × W, with sides that are multiples of 32.
  DetectorOutput forward(const at::Tensor& images);

  // Weights from the seed. Where nothing has been learnt every anchor holds an object with probability 0.01: else the
  // loss of all the background would drown the rest (section 4.1).
  void initialise(std::uint64_t seed);

  // The trunk's weights and statistics from a safetensors file with torchvision's names; what else the file holds is not
  // read. UserError for a tensor that is missing, or of another shape or type.
  void load_backbone(const std::filesystem::path& file);

  const ResNetTrunk& trunk() const { return trunk_; }
  const FeaturePyramid& pyramid() const { return pyramid_; }
  const DetectionHead& class_head() const { return class_head_; }
  const DetectionHead& box_head() const { return box_head_; }

 private:
  static constexpr std::int64_t kWidth = 256;

  ResNetTrunk trunk_;
  FeaturePyramid pyramid_;
  DetectionHead class_head_, box_head_;
};

struct DetectionModelInfo {
  std::string name;
  int layers;
};

const std::vector<DetectionModelInfo>& detection_models();

// Throws UserError, naming those there are.
const DetectionModelInfo& detection_model(const std::string& name);

}  // namespace lowtide
