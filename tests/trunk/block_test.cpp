#include "lowtide/trunk/block.h"

#include <gtest/gtest.h>

namespace lowtide {
namespace {

std::vector<std::string> names(const torch::nn::Module& module) {
  std::vector<std::string> result;
  for (const auto& item : module.named_children()) result.push_back(item.key());
  return result;
}

// Checkpoints and rules know layers by these names, and noise by their order.
TEST(Block, RegistersConvolutionsThenNormsThenTheShortcut) {
  torch::nn::Module owner("owner");
  const ConvBlock block = register_block(owner, bottleneck(16, 8, 2));
  EXPECT_EQ(names(owner), (std::vector<std::string>{"conv1", "conv2", "conv3", "norm1", "norm2", "norm3",
                                                    "shortcut", "shortcut_norm"}));
  EXPECT_FALSE(block.adds_input);
  EXPECT_FALSE(block.projection->relu);
  torch::nn::Module later("owner");
  register_block(later, {.convs = {{.in_channels = 3, .out_channels = 4}}}, 2);
  EXPECT_EQ(names(later), (std::vector<std::string>{"conv2", "norm2"}));
}

TEST(Block, AShortcutIsTheInputWhereItsShapeStays) {
  EXPECT_TRUE(basic_block(16, 16, 1).adds_input);
  for (const ConvBlockOptions& changed :
       {basic_block(16, 32, 1), basic_block(16, 16, 2), bottleneck(16, 16, 1)}) {
    EXPECT_FALSE(changed.adds_input);
    ASSERT_TRUE(changed.projection);
    EXPECT_EQ(changed.projection->out_channels, changed.convs.back().out_channels);
  }
  const ConvBlockOptions strided = inverted_residual(8, 8, 6, 2);
  EXPECT_FALSE(strided.adds_input || strided.projection);
}

TEST(Block, ReluStandsBetweenStagesAndAtTheEndWhereAsked) {
  torch::nn::Module owner("owner");
  const ConvBlock block = register_block(owner, inverted_residual(8, 8, 6, 1));
  EXPECT_TRUE(block.stages[0].relu && block.stages[1].relu);
  EXPECT_FALSE(block.stages[2].relu);
}

TEST(Block, AFrozenNormHasNoParameters) {
  torch::nn::Module owner("owner");
  ConvBlockOptions options = basic_block(4, 8, 2);
  options.frozen_norm = true;
  register_block(owner, options);
  for (const auto& item : owner.named_parameters()) EXPECT_EQ(item.key().find("norm"), item.key().npos);
}

}  // namespace
}  // namespace lowtide
