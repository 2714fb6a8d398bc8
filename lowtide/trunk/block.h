#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>

#include <optional>
#include <vector>

#include "lowtide/nn/batch_norm.h"
#include "lowtide/nn/quant_conv2d.h"

namespace lowtide {

// A convolution and its batch normalisation.
struct ConvStage {
  QuantConv2d conv{nullptr};
  BatchNorm norm{nullptr};
  bool relu = true;  // after the normalisation; in the last stage of a block after the sum
};

// Stages in a row, and beside them a shortcut from the input to the sum at the end: none, the input itself, or a stage of its
// own (a projection).
struct ConvBlock {
  std::vector<ConvStage> stages;
  bool adds_input = false;
  std::optional<ConvStage> projection;
};

// The geometry of a block.
struct ConvBlockOptions {
  std::vector<QuantConv2dOptions> convs;
  bool adds_input = false;
  std::optional<QuantConv2dOptions> projection = std::nullopt;
  bool relu = true;  // at the end; between the stages there always is one
  bool frozen_norm = false;
};

// Makes a block's modules and registers them in `owner`: conv1, conv2, …, then norm1, norm2, …, then shortcut and
// shortcut_norm. `first` is the number that the names begin with.
ConvBlock register_block(torch::nn::Module& owner, const ConvBlockOptions& options, int first = 1);

// The same in a module of the block's own, the next in the list.
ConvBlock push_block(torch::nn::ModuleListImpl& list, const ConvBlockOptions& options);

// Two 3×3 convolutions (He et al. 2016, figure 5 left). The shortcut is a strided 1×1 convolution where the size or the
// channels change, else the input itself.
ConvBlockOptions basic_block(std::int64_t in, std::int64_t out, std::int64_t stride);

// 1×1, 3×3 with the stride, 1×1 with four times the channels (figure 5 right); the shortcut likewise.
inline constexpr std::int64_t kBottleneckExpansion = 4;
ConvBlockOptions bottleneck(std::int64_t in, std::int64_t width, std::int64_t stride);

// Expand 1×1, depthwise 3×3, project 1×1 without a ReLU (Sandler et al. 2018, figure 3); with stride 1 the input is added,
// through a 1×1 convolution where the channels change. ReLU, not ReLU6.
ConvBlockOptions inverted_residual(std::int64_t in, std::int64_t out, std::int64_t expansion,
                                   std::int64_t stride);

}  // namespace lowtide
