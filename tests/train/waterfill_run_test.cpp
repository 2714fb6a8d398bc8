// Runs that choose bits for every layer while they train.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "lowtide/cost/ledger.h"
#include "lowtide/engine/observed.h"
#include "lowtide/io/jsonl.h"
#include "lowtide/nn/quant_layer.h"
#include "lowtide/study/loop_bits.h"
#include "lowtide/tasks/task.h"
#include "lowtide/train/checkpoint.h"
#include "lowtide/train/layer_look.h"
#include "lowtide/train/run_folder.h"
#include "tests/io/scratch.h"
#include "tests/train/closed_loop.h"
#include "tests/train/resumed.h"
#include "tests/train/small_run.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

class WaterfillRun : public testing::Test {
 protected:
  WaterfillRun() {
    write_small_dataset(folder_ / "data");
    recipe_ = small_recipe(folder_ / "data");
    recipe_.precision.schedule = "waterfill 3:8 grad=8 every=4 budget=0.63";
    recipe_.training.lr_schedule = "cosine";
    recipe_.running.log_every = 1000;  // the loop's lines come by themselves
  }

  static Json state_of(const fs::path& run) { return read_checkpoint_state(RunPaths{run}.checkpoint(40)); }
  static std::vector<Json> layer_lines(const fs::path& run) {
    std::vector<Json> lines;
    for (const Json& line : read_jsonl(RunPaths{run}.metrics()).lines) {
      if (line.value("split", "") == "layers") lines.push_back(line);
    }
    return lines;
  }

  const ScratchFolder folder_;
  Recipe recipe_;
};

TEST_F(WaterfillRun, DoesNotDependOnTheNumberOfThreads) {
  expect_run_independent_of_threads(recipe_, folder_.path());
}

// 40 steps of 192 bit operations a MAC and item, of which 0.63; below that by less than one more bit would cost of a layer in one
// of the last four steps.
TEST_F(WaterfillRun, SpendsItsBudgetInTheLedger) {
  for (const bool has_rules : {false, true}) {
    if (has_rules) recipe_.precision.layer_bits = {"conv1=8", "group3.*=fp32"};
    const fs::path run = folder_ / (has_rules ? "rules" : "run");
    const Json result = train(recipe_, run);
    const Ledger ledger = Ledger::from_state(state_of(run).at("ledger"));
    std::int64_t macs = 0;
    for (const Ledger::Layer& layer : ledger.layers()) macs += layer.macs;
    const Count budget = static_cast<Count>(0.63 * 40 * 192) * static_cast<Count>(macs) * 20;
    ASSERT_TRUE(ledger.macs() == static_cast<Count>(macs) * 20 * 40);
    EXPECT_TRUE(ledger.paper().total() <= budget);
    Count raise = ~Count{0};
    for (const Json& line : layer_lines(run)) {
      if (line.at("step") <= 36) continue;
      for (const Ledger::Layer& layer : ledger.layers()) {
        const int bits = line.value(layer.name + ".bits", 8);
        if (bits == 8) continue;
        const std::int64_t more = step_cost({bits + 1, 8}) - step_cost({bits, 8});
        raise = std::min(raise, static_cast<Count>(layer.macs * 20 * more));
      }
    }
    EXPECT_TRUE(budget - ledger.paper().total() < raise);
    EXPECT_NEAR(result.at("relative_cost").get<double>(), 0.63 * 192 / 3072, 1e-4);
    // As it was logged, layer by layer.
    std::map<std::string, Count> logged;
    std::int64_t from = 0;
    for (const Json& line : layer_lines(run)) {
      const std::int64_t steps = line.at("step").get<std::int64_t>() - from;
      from = line.at("step");
      for (const Ledger::Layer& layer : ledger.layers()) {
        if (!line.contains(layer.name + ".bits")) continue;
        const Bits bits{line.at(layer.name + ".bits").get<int>(), 8};
        logged[layer.name] += static_cast<Count>(step_cost(bits)) * static_cast<Count>(steps * 20) *
                              static_cast<Count>(layer.macs);
      }
    }
    EXPECT_EQ(from, 40);
    EXPECT_EQ(logged.size(), has_rules ? 5u : 9u) << "the layers without a rule";
    for (const Ledger::Layer& layer : ledger.layers()) {
      if (!logged.contains(layer.name)) continue;
      EXPECT_TRUE(ledger.actual(layer).total() == logged.at(layer.name)) << layer.name;
    }
  }
}

TEST_F(WaterfillRun, InADelayAllLayersHaveItsBits) {
  recipe_.precision.schedule = "delayed 10 at=8 waterfill 3:8 grad=8 every=4 budget=0.8";
  train(recipe_, folder_ / "run");
  const std::vector<Json> lines = layer_lines(folder_ / "run");
  ASSERT_GT(lines.size(), 2u);
  EXPECT_EQ(lines[0].at("step"), 10);
  int others = 0;
  for (const auto& [key, value] : lines[0].items()) {
    if (!key.ends_with(".bits")) continue;
    EXPECT_EQ(value, 8) << key;
    others += lines[1].at(key) != 8 ? 1 : 0;
  }
  EXPECT_GT(others, 0) << "or the test shows nothing";
  const BitTable table = logged_bits(RunPaths{folder_ / "run"}, 40);
  EXPECT_EQ(table.runs()[0].steps, 10);
}

TEST_F(WaterfillRun, LayersHaveBitsOfTheirOwn) {
  train(recipe_, folder_ / "run");
  const std::vector<Json> lines = layer_lines(folder_ / "run");
  int looks = 0, apart = 0;
  for (const Json& line : lines) {
    const bool is_look = line.contains("conv1.sensitivity");
    looks += is_look ? 1 : 0;
    EXPECT_EQ(line.contains("step_took"), is_look);
    if (is_look) {
      EXPECT_GT(line.at("took").get<double>(), 0);
      EXPECT_GT(line.at("step_took").get<double>(), 0);
    }
    std::set<int> bits;
    for (const auto& [key, value] : line.items()) {
      if (key.ends_with(".bits")) bits.insert(value.get<int>());
    }
    apart += bits.size() > 1 ? 1 : 0;
  }
  EXPECT_EQ(looks, 9) << "after each interval of 4 steps but the last";
  EXPECT_GT(apart, 4);
  EXPECT_EQ(state_of(folder_ / "run").at("schedule").at("looks"), 9);
}

// With the reference engine a look changes no bit of the step that it looks at; other engines make a trunk's passes
// otherwise then.
TEST_F(WaterfillRun, TrainsAsATableOfItsBitsDoes) {
  recipe_.precision.engine = "simulated";
  recipe_.precision.eval_bits = 8;
  train(recipe_, folder_ / "loop");
  const BitTable bits = logged_bits(RunPaths{folder_ / "loop"}, 40);
  recipe_.precision.schedule = "table " + to_string(bits) + " grad=8";
  train(recipe_, folder_ / "table");
  const Json loop = state_of(folder_ / "loop"), table = state_of(folder_ / "table");
  for (const char* part : {"step", "task", "rate", "optimizer", "average", "ledger"})
    EXPECT_EQ(loop.at(part), table.at(part)) << part;
  EXPECT_EQ(tensor_bytes(RunPaths{folder_ / "loop"}.checkpoint(40)),
            tensor_bytes(RunPaths{folder_ / "table"}.checkpoint(40)));
}

TEST_F(WaterfillRun, ARuleWinsForItsLayer) {
  recipe_.precision.layer_bits = {"conv1=5", "group2.*=fp32"};
  train(recipe_, folder_ / "run");
  const Ledger ledger = Ledger::from_state(state_of(folder_ / "run").at("ledger"));
  const auto macs = [&](const Ledger::Layer& layer) { return static_cast<Count>(layer.macs) * 20 * 40; };
  for (const Ledger::Layer& layer : ledger.layers()) {
    const int bits = layer.name == "conv1" ? 5 : layer.name.starts_with("group2") ? 0 : -1;
    if (bits < 0) continue;
    const Count cost = bits == 0 ? Count{3 * 32 * 32} : static_cast<Count>(step_cost({bits, 8}));
    EXPECT_TRUE(ledger.actual(layer).total() == macs(layer) * cost) << layer.name;
  }
  for (const Json& line : layer_lines(folder_ / "run")) EXPECT_FALSE(line.contains("conv1.bits"));
}

TEST_F(WaterfillRun, SaysWhatItCannotDo) {
  recipe_.precision.schedule = "waterfill 3:8 grad=8 every=4 budget=0.1";
  EXPECT_TRUE(contains(user_error([&] { train(recipe_, folder_ / "run"); }), "possible is 0.2969 to 1.0000"));
  recipe_.precision.schedule = "waterfill 3:8 grad=8 every=4 budget=0.63";
  recipe_.precision.layer_bits = {"*=8"};
  EXPECT_TRUE(contains(user_error([&] { train(recipe_, folder_ / "run"); }), "none without a rule"));
  recipe_.precision.layer_bits = {};
  recipe_.precision.schedule = "table 5[4/5]x40";
  EXPECT_TRUE(contains(user_error([&] { train(recipe_, folder_ / "run"); }),
                       "bits of 2 layers, and the network has"));
}

// What a convolution multiplied, for the formula written out.
struct Recorded final : ProductObserver {
  torch::Tensor x, dx, dw;

  void forward(const Quantized& input, const Quantized&) override { x = decode(input).to(torch::kDouble); }
  void input_gradient(const at::Tensor& gradient) override { dx = gradient.to(torch::kDouble); }
  void weight_gradient(const Quantized&, const at::Tensor& gradient) override {
    dw = gradient.to(torch::kDouble);
  }
  bool needs_input_gradient() const override { return false; }
};

// Within the roundings of codes to floats and of sums of some 10^4 floats, 1e-3 and less.
TEST_F(WaterfillRun, SensitivityIsThatOfTheFormula) {
  recipe_.precision.engine = "simulated";
  const std::string layer = "group2.0.conv1";
  const auto step = [&](Task& task) {
    task.model().train();
    task.execution().bits = {6, 8};
    task.train_step();
  };
  const auto looked = make_task(recipe_), recorded = make_task(recipe_);
  const std::vector<Ledger::Layer> layers = looked->layers();
  const auto place = std::find_if(layers.begin(), layers.end(), [&](auto& of) { return of.name == layer; });
  double told = 0, first = 0;
  {
    LayerLook look(looked->execution(), layer_choices(looked->model(), layers), {});
    step(*looked);
    look.take_gradients(chosen_weights(looked->model(), layers), looked->model().parameters());
    const std::vector<double> all = look.sensitivities(*alone(), 0.1, 20);
    told = all[static_cast<std::size_t>(place - layers.begin())];
    first = all[0];
    EXPECT_TRUE(std::isnan(all.back())) << "fc is in fp32";
  }
  const auto seen = std::make_shared<Recorded>(), seen_first = std::make_shared<Recorded>();
  Execution& execution = recorded->execution();
  execution.engine_of = [&](const QuantLayer& one) {
    if (one.layer_name() == "conv1") return observed(execution.engine, seen_first);
    return one.layer_name() == layer ? observed(execution.engine, seen) : execution.engine;
  };
  step(*recorded);
  double squares = 0;
  torch::Tensor weight, first_weight;
  for (const auto& item : recorded->model().named_parameters()) {
    if (item.value().grad().defined())
      squares += item.value().grad().to(torch::kDouble).square().sum().item<double>();
    if (item.key().ends_with(layer + ".weight")) weight = item.value().detach().to(torch::kDouble);
    if (item.key() == "conv1.weight" || item.key().ends_with(".conv1.weight")) {
      if (!item.key().ends_with("0.conv1.weight")) first_weight = item.value().detach().to(torch::kDouble);
    }
  }
  const auto of_weights = [](const torch::Tensor& w, const torch::Tensor& dw) {
    const torch::Tensor rows = w.flatten(1);
    const torch::Tensor range = std::get<0>(rows.max(1)) - std::get<0>(rows.min(1));
    return (range.square() * dw.flatten(1).square().sum(1)).sum().item<double>();
  };
  const double range = (seen->x.max() - seen->x.min()).item<double>();
  const double expected =
      (range * range * seen->dx.square().sum().item<double>() + 20 * of_weights(weight, seen->dw)) /
      (24 * 0.1 * squares);
  EXPECT_NEAR(told, expected, 1e-3 * expected);
  // Nobody needs the gradient at the images, so it is not computed.
  EXPECT_FALSE(seen_first->dx.defined());
  const double expected_first = 20 * of_weights(first_weight, seen_first->dw) / (24 * 0.1 * squares);
  EXPECT_NEAR(first, expected_first, 1e-3 * expected_first);
}

}  // namespace
}  // namespace lowtide
