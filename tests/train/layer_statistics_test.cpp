#include "lowtide/train/layer_statistics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lowtide/engine/observed.h"
#include "lowtide/io/file.h"
#include "lowtide/nn/quant_layer.h"
#include "lowtide/nn/quant_lstm.h"
#include "lowtide/tasks/chosen_layers.h"
#include "tests/io/scratch.h"
#include "tests/tasks/small_papers.h"
#include "tests/train/resumed.h"
#include "tests/train/small_run.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

constexpr double kRate = 0.1;
constexpr std::int64_t kBatch = 20;  // of the small recipe

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

QuantLayer& layer_named(torch::nn::Module& model, const std::string& name) {
  const std::vector<QuantLayer*> layers = quant_layers(model);
  return **std::find_if(layers.begin(), layers.end(),
                        [&](const QuantLayer* layer) { return layer->layer_name() == name; });
}

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

// The last batch once more, in floats, as a layer is seen.
void watch(Task& task, const std::string& layer, const std::shared_ptr<ProductObserver>& observer) {
  Execution& execution = task.execution();
  const Execution before = execution;
  execution.bits = {};
  execution.engine_of = [&](const QuantLayer& one) {
    return one.layer_name() == layer ? observed(execution.engine, observer, layout_of(one))
                                     : execution.engine;
  };
  task.model().zero_grad();
  task.repeat_loss().backward();
  execution = before;
}

std::shared_ptr<Recorded> record(Task& task, const std::string& layer) {
  auto recorded = std::make_shared<Recorded>();
  watch(task, layer, recorded);
  return recorded;
}

// Squares of values, and of what rounding them loses: round((x - min) / scale) with scale = range / (2^bits - 1), written out.
struct PlainSquares {
  double signal = 0, noise = 0;

  void add(const torch::Tensor& x, const torch::Tensor& min, const torch::Tensor& range, int bits) {
    const torch::Tensor scale = range / (std::pow(2.0, bits) - 1);
    const torch::Tensor lost = x - (((x - min) / scale).round() * scale + min);
    signal += x.square().sum().item<double>();
    noise += lost.square().sum().item<double>();
  }
  void add_rows(const torch::Tensor& x, int bits) {
    const torch::Tensor low = x.amin(1, true);
    add(x, low, (x.amax(1, true) - low).clamp_min(1e-6), bits);
  }
  double decibels() const { return 10 * std::log10(signal / noise); }
};

double plain_snr(const torch::Tensor& x, const torch::Tensor& min, const torch::Tensor& range, int bits) {
  PlainSquares squares;
  squares.add(x, min, range, bits);
  return squares.decibels();
}

// Codes come of floats: a value within a float's error of the middle between two codes may go to the other. Of thousands of
// values that moves the noise by far less than one in a hundred, 0.04 dB.
constexpr double kDecibels = 0.04;

TEST_F(LayerStatistics, NoiseIsThatOfWeightsByChannelAndOfActivationsByTensor) {
  const auto task = task_after_a_step({4, 8});
  const std::vector<LayerFigures> all = layer_statistics(*task, kRate, kBatch);
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
  const double four = *figures_of(layer_statistics(*task, kRate, kBatch), "group2.0.conv1").weight_snr;
  task->execution().bits = {8, 8};
  const double eight = *figures_of(layer_statistics(*task, kRate, kBatch), "group2.0.conv1").weight_snr;
  // 20 log10(255 / 15) = 24.6, where the noise is even between two codes.
  EXPECT_NEAR(eight - four, 20 * std::log10(255.0 / 15), 1);
}

TEST_F(LayerStatistics, SensitivityIsAsItsFormulaSays) {
  const auto task = task_after_a_step({4, 8});
  const std::vector<LayerFigures> all = layer_statistics(*task, kRate, kBatch);
  for (const char* layer : {"conv1", "group3.0.conv2"}) {
    const auto r = record(*task, layer);
    double all_squares = 0;
    for (const torch::Tensor& parameter : task->model().parameters())
      all_squares += parameter.grad().to(torch::kDouble).square().sum().item<double>();
    const torch::Tensor rows = r->w.flatten(1);
    const torch::Tensor ranges = rows.amax(1) - rows.amin(1);
    const double range = (r->x.max() - r->x.min()).item<double>();
    const double of_weights = (ranges.square() * r->dw.flatten(1).square().sum(1)).sum().item<double>();
    const double expected =
        (range * range * r->dx.square().sum().item<double>() + static_cast<double>(kBatch) * of_weights) /
        (24 * kRate * all_squares);
    // Sums of floats, and gradients that are computed twice.
    EXPECT_NEAR(*figures_of(all, layer).sensitivity / expected, 1, 1e-4) << layer;
  }
  EXPECT_NEAR(*figures_of(layer_statistics(*task, kRate / 2, kBatch), "conv1").sensitivity /
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
  EXPECT_NEAR(*figures_of(layer_statistics(*task, kRate, kBatch), "conv1").clipped, expected, 1e-3);
}

TEST_F(LayerStatistics, WhatIsNotQuantisedHasNoNoise) {
  recipe_.precision.layer_bits = {"conv1=fp32"};
  const auto task = task_after_a_step({4, 8});
  const std::vector<LayerFigures> all = layer_statistics(*task, kRate, kBatch);
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

// Two words to a line, in a text that repeats.
void write_text(const fs::path& folder) {
  std::string text;
  for (int i = 0; i < 400; ++i)
    text += std::string("w") + std::to_string(i * i % 7) + (i % 10 == 9 ? "\n" : " ");
  fs::create_directories(folder);
  for (const char* part : {"train", "valid", "test"})
    write_atomically(folder / ("wiki." + std::string(part) + ".tokens"), std::string_view(text));
}

Recipe text_recipe(const fs::path& data) {
  Recipe recipe;
  recipe.data.format = "wikitext";
  recipe.data.dir = data.string();
  recipe.data.length = 9;
  recipe.model.hidden = 16;
  recipe.model.heads = 2;
  recipe.model.dropout = 0.2;
  recipe.training.batch = 4;
  recipe.training.steps = 8;
  recipe.precision.bits = "4:8";
  recipe.precision.cycles = 2;
  recipe.running.log_every = 3;
  return recipe;
}

// Networks with dropout, one that remembers and one whose errors have a range for each position.
TEST_F(LayerStatistics, TextModelsHaveTheSameBytesWithThem) {
  write_text(folder_ / "text");
  Recipe recipe = text_recipe(folder_ / "text");
  for (const char* model : {"lstm", "transformer"}) {
    recipe.model.name = model;
    expect_same_bytes(recipe, folder_ / model);
  }
}

TEST_F(LayerStatistics, GraphsHaveTheSameBytesWithThem) {
  write_papers(folder_ / "papers");
  Recipe recipe = node_recipe(folder_ / "papers");
  recipe.training.steps = 8;
  for (const char* model : {"gcn", "sage", "gat"}) {
    recipe.model.name = model;
    expect_same_bytes(recipe, folder_ / model);
  }
}

// What the products of a layer that has several were made of.
struct Calls final : ProductObserver {
  std::vector<torch::Tensor> x, dx, errors;

  void forward(const Quantized& input, const Quantized&) override {
    x.push_back(input.code.detach().to(torch::kDouble));
  }
  void input_gradient(const at::Tensor& gradient) override { dx.push_back(gradient.to(torch::kDouble)); }
  void weight_gradient(const Quantized& error, const at::Tensor&) override {
    errors.push_back(error.code.to(torch::kDouble));
  }
};

// What stochastic rounding with a range a row loses, in the mean over its noise.
double expected_error_snr(const torch::Tensor& error) {
  const torch::Tensor low = error.amin(1, true);
  const torch::Tensor scale = ((error.amax(1, true) - low) / 255).clamp_min(1e-12);
  const torch::Tensor fraction = ((error - low) / scale).frac();
  const double noise = (scale.square() * fraction * (1 - fraction)).sum().item<double>();
  return 10 * std::log10(error.square().sum().item<double>() / noise);
}

double expected_sensitivity(Task& task, QuantLayer& layer, double inputs, std::int64_t batch) {
  double all = 0, of_weights = 0;
  for (const torch::Tensor& parameter : task.model().parameters())
    all += parameter.grad().to(torch::kDouble).square().sum().item<double>();
  for (const torch::Tensor& weight : weights_of(layer)) {
    const torch::Tensor ranges = (weight.amax(1) - weight.amin(1)).to(torch::kDouble);
    of_weights += (ranges.square() * weight.grad().to(torch::kDouble).square().sum(1)).sum().item<double>();
  }
  return (inputs + static_cast<double>(batch) * of_weights) / (24 * kRate * all);
}

// x is quantised for each step in time, and h likewise; W and U by their rows; the error by item and step.
TEST_F(LayerStatistics, AnLstmIsRoundedStepByStep) {
  write_text(folder_ / "text");
  recipe_ = text_recipe(folder_ / "text");
  recipe_.model.name = "lstm";
  recipe_.model.dropout = 0;
  recipe_.precision.engine = "simulated";
  const auto task = task_after_a_step({4, 8});
  const std::int64_t words = task->items_per_step();
  const std::vector<LayerFigures> all = layer_statistics(*task, kRate, words);
  const std::vector<QuantLayer*> layers = quant_layers(task->model());
  const auto found = std::find_if(layers.begin(), layers.end(), [](QuantLayer* one) {
    return dynamic_cast<QuantLstmImpl*>(one) != nullptr;
  });
  ASSERT_NE(found, layers.end());
  auto& lstm = dynamic_cast<QuantLstmImpl&>(**found);
  const LayerFigures& figures = figures_of(all, lstm.layer_name());
  const auto calls = std::make_shared<Calls>();
  watch(*task, lstm.layer_name(), calls);
  const torch::NoGradGuard no_grad;
  ASSERT_EQ(calls->x.size(), 1u + 9) << "x at once, and h in each of nine steps";

  PlainSquares weights, activations;
  for (const torch::Tensor& weight : weights_of(lstm)) weights.add_rows(weight.to(torch::kDouble), 4);
  EXPECT_NEAR(*figures.weight_snr, weights.decibels(), kDecibels);
  const torch::Tensor x = calls->x[0].view({9, -1});
  activations.add_rows(x, 4);
  for (std::size_t t = 1; t < calls->x.size(); ++t) activations.add_rows(calls->x[t].view({1, -1}), 4);
  EXPECT_NEAR(*figures.activation_snr, activations.decibels(), kDecibels);
  // 9·4 rows of 64 errors: the sum over noise is known to a few percent.
  EXPECT_NEAR(*figures.error_snr, expected_error_snr(calls->errors[0]), 1);

  double widest = 0, squares = 0, clipped = 0;
  for (std::size_t call = 0; call < calls->x.size(); ++call) {
    const Range running = call == 0 ? lstm.ranges().input.running() : lstm.ranges().hidden.running();
    const double half = running.range.item<double>() / 30, low = running.min.item<double>();
    const torch::Tensor& values = calls->x[call];
    clipped += (values.lt(low - half) | values.gt(low + 31 * half)).sum().item<double>();
    const torch::Tensor steps = call == 0 ? x : values.view({1, -1});
    widest = std::max(widest, (steps.amax(1) - steps.amin(1)).max().item<double>());
  }
  for (const torch::Tensor& dx : calls->dx) squares += dx.square().sum().item<double>();
  const double values = static_cast<double>(x.numel() + 9 * calls->x[1].numel());
  EXPECT_NEAR(*figures.clipped, clipped / values, 2 / values) << "but for a value on the border";
  // Sums of floats, and gradients that are computed twice.
  EXPECT_NEAR(*figures.sensitivity / expected_sensitivity(*task, lstm, widest * widest * squares, words), 1,
              1e-4);
}

// Features are quantised by node.
TEST_F(LayerStatistics, LayersOnGraphsAreRoundedNodeByNode) {
  write_papers(folder_ / "papers");
  for (const char* model : {"gcn", "sage", "gat"}) {
    recipe_ = node_recipe(folder_ / "papers");
    recipe_.model.name = model;
    recipe_.model.dropout = 0;
    recipe_.model.input_dropout = 0;
    recipe_.precision.engine = "simulated";
    const auto task = task_after_a_step({4, 8});
    const std::vector<LayerFigures> all = layer_statistics(*task, kRate, 7);
    ASSERT_EQ(all.size(), 2u) << model;
    QuantLayer& layer = layer_named(task->model(), "layer1");
    const auto calls = std::make_shared<Calls>();
    watch(*task, "layer1", calls);
    const torch::NoGradGuard no_grad;
    PlainSquares weights, activations;
    double widest = 0, squares = 0;
    for (const torch::Tensor& weight : weights_of(layer)) weights.add_rows(weight.to(torch::kDouble), 4);
    for (const torch::Tensor& x : calls->x) {
      activations.add_rows(x, 4);
      widest = std::max(widest, (x.amax(1) - x.amin(1)).max().item<double>());
    }
    for (const torch::Tensor& dx : calls->dx) squares += dx.square().sum().item<double>();
    const LayerFigures& figures = figures_of(all, "layer1");
    EXPECT_NEAR(*figures.weight_snr, weights.decibels(), kDecibels) << model;
    EXPECT_NEAR(*figures.activation_snr, activations.decibels(), kDecibels) << model;
    EXPECT_GT(*figures.error_snr, 20) << model << ", of 8 bits";
    EXPECT_FALSE(figures.clipped) << model << ": an evaluation has ranges of its own";
    EXPECT_NEAR(*figures.sensitivity / expected_sensitivity(*task, layer, widest * widest * squares, 7), 1,
                1e-4)
        << model;
    const LayerFigures& first = figures_of(all, "layer0");
    EXPECT_TRUE(first.weight_snr && first.activation_snr && first.error_snr) << model;
    QuantLayer& reader = layer_named(task->model(), "layer0");
    EXPECT_NEAR(*first.sensitivity / expected_sensitivity(*task, reader, 0, 7), 1, 1e-4)
        << model << ": nobody needs a gradient at the features";
  }
}

}  // namespace
}  // namespace lowtide
