#include "lowtide/train/layer_statistics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lowtide/engine/observed.h"
#include "lowtide/io/file.h"
#include "lowtide/nn/quant_layer.h"
#include "tests/io/scratch.h"
#include "tests/train/resumed.h"
#include "tests/train/small_run.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

constexpr double kRate = 0.1;

class LayerStatistics : public testing::Test {
 protected:
  LayerStatistics() {
    write_small_dataset(folder_ / "data");
    recipe_ = small_recipe(folder_ / "data");
    recipe_.precision.engine = "simulated";
  }

  // After a step at these bits.
  std::unique_ptr<Task> task_after_a_step(Bits bits) const {
    std::unique_ptr<Task> task = make_task(recipe_);
    task->model().train();
    task->execution().bits = bits;
    task->train_step();
    return task;
  }

  const ScratchFolder folder_;
  Recipe recipe_;
};

const LayerFigures& figures_of(const std::vector<LayerFigures>& all, const std::string& layer) {
  return *std::find_if(all.begin(), all.end(), [&](const LayerFigures& one) { return one.layer == layer; });
}

// What a convolution multiplied in floats.
struct Recorded final : ProductObserver {
  torch::Tensor x, w, dx, dy, dw;

  void forward(const Quantized& input, const Quantized& weight) override {
    x = input.code.detach().to(torch::kDouble);
    w = weight.code.detach().to(torch::kDouble);
  }
  void input_gradient(const at::Tensor& gradient) override { dx = gradient.to(torch::kDouble); }
  void weight_gradient(const Quantized& error, const at::Tensor& gradient) override {
    dy = error.code.to(torch::kDouble);
    dw = gradient.to(torch::kDouble);
  }
};

std::shared_ptr<Recorded> record(Task& task, const std::string& layer) {
  auto recorded = std::make_shared<Recorded>();
  Execution& execution = task.execution();
  const Execution before = execution;
  execution.bits = {};
  execution.engine_of = [&](const QuantLayer& one) {
    return one.layer_name() == layer ? observed(execution.engine, recorded) : execution.engine;
  };
  task.model().zero_grad();
  task.repeat_loss().backward();
  execution = before;
  return recorded;
}

// round((x - min) / scale) with scale = range / (2^bits - 1), and what that loses, written out.
double plain_snr(const torch::Tensor& x, const torch::Tensor& min, const torch::Tensor& range, int bits) {
  const torch::Tensor scale = range / (std::pow(2.0, bits) - 1);
  const torch::Tensor noise = x - (((x - min) / scale).round() * scale + min);
  return 10 * std::log10(x.square().sum().item<double>() / noise.square().sum().item<double>());
}

// Codes come of floats: a value within a float's error of the middle between two codes may go to the other. Of thousands of
// values that moves the noise by far less than one in a hundred, 0.04 dB.
constexpr double kDecibels = 0.04;

TEST_F(LayerStatistics, NoiseIsThatOfWeightsByChannelAndOfActivationsByTensor) {
  const auto task = task_after_a_step({4, 8});
  const std::vector<LayerFigures> all = layer_statistics(*task, kRate);
  const auto recorded = record(*task, "group1.0.conv2");
  const LayerFigures& conv = figures_of(all, "group1.0.conv2");
  const torch::Tensor rows = recorded->w.flatten(1);
  const torch::Tensor low = rows.amin(1, true), range = rows.amax(1, true) - low;
  EXPECT_NEAR(*conv.weight_snr, plain_snr(rows, low, range, 4), kDecibels);
  const torch::Tensor x = recorded->x;
  EXPECT_NEAR(*conv.activation_snr, plain_snr(x, x.min(), x.max() - x.min(), 4), kDecibels);
  // Stochastic rounding's noise has a variance of scale²·f·(1 - f) for a fraction f, and here nothing but its mean is known:
  // it varies by a few percent over thousands of errors.
  const torch::Tensor dy = recorded->dy;
  const double scale = (dy.max() - dy.min()).item<double>() / 255;
  const torch::Tensor fraction = ((dy - dy.min()) / scale).frac();
  const double noise = scale * scale * (fraction * (1 - fraction)).sum().item<double>();
  EXPECT_NEAR(*conv.error_snr, 10 * std::log10(dy.square().sum().item<double>() / noise), 1);
}

TEST_F(LayerStatistics, MoreBitsAreSixDecibelsEach) {
  const auto task = task_after_a_step({4, 8});
  const double four = *figures_of(layer_statistics(*task, kRate), "group2.0.conv1").weight_snr;
  task->execution().bits = {8, 8};
  const double eight = *figures_of(layer_statistics(*task, kRate), "group2.0.conv1").weight_snr;
  // 20 log10(255 / 15) = 24.6, where the noise is even between two codes.
  EXPECT_NEAR(eight - four, 20 * std::log10(255.0 / 15), 1);
}

TEST_F(LayerStatistics, SensitivityIsAsItsFormulaSays) {
  const auto task = task_after_a_step({4, 8});
  const std::vector<LayerFigures> all = layer_statistics(*task, kRate);
  for (const char* layer : {"conv1", "group3.0.conv2"}) {
    const auto r = record(*task, layer);
    double all_squares = 0;
    for (const torch::Tensor& parameter : task->model().parameters())
      all_squares += parameter.grad().to(torch::kDouble).square().sum().item<double>();
    const torch::Tensor rows = r->w.flatten(1);
    const torch::Tensor ranges = rows.amax(1) - rows.amin(1);
    const double range = (r->x.max() - r->x.min()).item<double>();
    const double of_weights = (ranges.square() * r->dw.flatten(1).square().sum(1)).sum().item<double>();
    const double expected = (range * range * r->dx.square().sum().item<double>() +
                             static_cast<double>(recipe_.training.batch) * of_weights) /
                            (24 * kRate * all_squares);
    // Sums of floats, and gradients that are computed twice.
    EXPECT_NEAR(*figures_of(all, layer).sensitivity / expected, 1, 1e-4) << layer;
  }
  EXPECT_NEAR(*figures_of(layer_statistics(*task, kRate / 2), "conv1").sensitivity /
                  *figures_of(all, "conv1").sensitivity,
              2, 1e-9);
}

TEST_F(LayerStatistics, ClippedIsWhatLiesOutsideTheRunningRange) {
  const auto task = task_after_a_step({4, 8});
  const auto recorded = record(*task, "conv1");
  const torch::Tensor x = recorded->x;
  // After one step the running range is a tenth of the way from 0. Half the distance of two of 16 codes is a 30th of it.
  const torch::Tensor range = 0.1 * (x.max() - x.min()), low = 0.1 * x.min();
  const double expected =
      (x.lt(low - range / 30) | x.gt(low + range + range / 30)).to(torch::kDouble).mean().item<double>();
  EXPECT_GT(expected, 0.5);
  EXPECT_NEAR(*figures_of(layer_statistics(*task, kRate), "conv1").clipped, expected, 1e-3);
}

TEST_F(LayerStatistics, WhatIsNotQuantisedHasNoNoise) {
  recipe_.precision.layer_bits = {"conv1=fp32"};
  const auto task = task_after_a_step({4, 8});
  const std::vector<LayerFigures> all = layer_statistics(*task, kRate);
  EXPECT_EQ(all.size(), 10u);  // of ResNet-8: seven 3×3 convolutions, two shortcuts, the classifier
  const LayerFigures& conv = figures_of(all, "conv1");
  EXPECT_FALSE(conv.weight_snr || conv.activation_snr || conv.error_snr || conv.clipped);
  EXPECT_GT(*conv.sensitivity, 0);
}

// With every other step looked at, and with none.
void expect_same_bytes(const Recipe& recipe, const fs::path& folder) {
  for_each_engine(recipe, folder, [](Recipe one, const fs::path& at) {
    train(one, at / "without");
    one.running.layer_stats = 2;
    train(one, at / "with");
    EXPECT_EQ(last_checkpoint(one, at / "with"), last_checkpoint(one, at / "without"));
    std::vector<Json> lines = timeless_metrics(at / "with");
    const std::size_t looks =
        std::erase_if(lines, [](const Json& line) { return line.value("split", "") == "layers"; });
    EXPECT_EQ(looks, static_cast<std::size_t>(one.training.steps) / 2);
    EXPECT_EQ(lines, timeless_metrics(at / "without"));
  });
}

TEST_F(LayerStatistics, TrainingHasTheSameBytesWithThem) {
  recipe_.training.steps = 12;
  recipe_.precision.cycles = 2;
  expect_same_bytes(recipe_, folder_.path());
}

TEST_F(LayerStatistics, ResumedRunsHaveTheSame) {
  recipe_.training.steps = 12;
  recipe_.precision.cycles = 2;
  recipe_.running.layer_stats = 3;
  expect_resumes_exactly(recipe_, folder_.path(), {5, 9});
}

// Networks with dropout, one that remembers and one whose errors have a range for each position.
TEST_F(LayerStatistics, TextModelsHaveTheSameBytesWithThem) {
  std::string text;
  for (int i = 0; i < 400; ++i)
    text += std::string("w") + std::to_string(i * i % 7) + (i % 10 == 9 ? "\n" : " ");
  fs::create_directories(folder_ / "text");
  for (const char* part : {"train", "valid", "test"})
    write_atomically(folder_ / "text" / ("wiki." + std::string(part) + ".tokens"), std::string_view(text));
  Recipe recipe;
  recipe.data.format = "wikitext";
  recipe.data.dir = (folder_ / "text").string();
  recipe.data.length = 9;
  recipe.model.hidden = 16;
  recipe.model.heads = 2;
  recipe.model.dropout = 0.2;
  recipe.training.batch = 4;
  recipe.training.steps = 8;
  recipe.precision.bits = "4:8";
  recipe.precision.cycles = 2;
  recipe.running.log_every = 3;
  for (const char* model : {"lstm", "transformer"}) {
    recipe.model.name = model;
    expect_same_bytes(recipe, folder_ / model);
  }
}

}  // namespace
}  // namespace lowtide
