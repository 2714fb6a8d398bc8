#include <gtest/gtest.h>

#include "lowtide/base/error.h"
#include "lowtide/io/jsonl.h"
#include "lowtide/study/loop_bits.h"
#include "lowtide/tasks/chosen_layers.h"
#include "lowtide/tasks/task.h"
#include "lowtide/train/run_folder.h"
#include "tests/io/scratch.h"
#include "tests/tasks/small_papers.h"
#include "tests/train/closed_loop.h"
#include "tests/train/resumed.h"

namespace lowtide {
namespace {

struct Variant {
  std::string name;
  void (*change)(Recipe&);
};

class Nodes : public testing::TestWithParam<Variant> {
 protected:
  Nodes() {
    write_papers(folder_ / "data");
    recipe_ = node_recipe(folder_ / "data");
    GetParam().change(recipe_);
  }

  const ScratchFolder folder_;
  Recipe recipe_;
};

TEST_P(Nodes, AClosedLoopProbesAWholeGraphAndNoSamples) {
  const std::string line = "price 3:8 every=5 budget=0.63";
  if (recipe_.data.fan_out.empty()) return expect_loop_trains_as_its_table(recipe_, line, folder_.path());
  recipe_.precision.schedule = line;
  EXPECT_TRUE(contains(user_error([&] { train(recipe_, folder_ / "run"); }), "leave out --fan-out"));
}

// A look changes no bit of what is trained, and layers hear of both their parts.
TEST_P(Nodes, BitsOfLayersAreChosenAndTrainAsATableOfThem) {
  recipe_.precision.eval_bits = 8;
  recipe_.running.log_every = 1000;
  for_each_engine(recipe_, folder_.path(), [](Recipe recipe, const std::filesystem::path& at) {
    recipe.precision.schedule = "waterfill 3:8 every=5 budget=0.63";
    train(recipe, at / "loop");
    const RunPaths loop{at / "loop"}, table{at / "table"};
    int looks = 0;
    for (const Json& line : read_jsonl(loop.metrics()).lines) {
      if (!line.contains("layer0.sensitivity")) continue;
      ++looks;
      for (const char* layer : {"layer0", "layer1"})
        EXPECT_GT(line.at(std::string(layer) + ".sensitivity").get<double>(), 0) << layer;
    }
    EXPECT_EQ(looks, 7) << "after each interval of 5 steps but the last";
    recipe.precision.schedule = "table " + to_string(logged_bits(loop, 40)) + " grad=8";
    train(recipe, at / "table");
    EXPECT_EQ(tensor_bytes(loop.checkpoint(40)), tensor_bytes(table.checkpoint(40)));
  });
}

TEST_P(Nodes, ResumedRunsEqualTheUninterruptedOne) {
  expect_resumes_exactly(recipe_, folder_.path(), {1, 17, 39});
}

TEST_P(Nodes, DoesNotDependOnTheNumberOfThreads) {
  expect_run_independent_of_threads(recipe_, folder_.path());
}

TEST_P(Nodes, Learns) {
  recipe_.training.steps = 100;
  recipe_.running.checkpoint_every = 0;
  EXPECT_GT(train(recipe_, folder_ / "run").at("test").get<double>(), 0.85);  // a third by chance
}

INSTANTIATE_TEST_SUITE_P(Variants, Nodes,
                         testing::Values(Variant{"gcn", [](Recipe&) {}},
                                         Variant{"gcn_quantized",
                                                 [](Recipe& r) {
                                                   r.model.aggregation = "quantized";
                                                   r.model.quantize_norm = true;
                                                 }},
                                         Variant{"gcn_published",
                                                 [](Recipe& r) {
                                                   r.model.norm = "none";
                                                   r.model.input_dropout = 0.5;
                                                   r.model.dropout = 0.5;
                                                   r.training.weight_decay = 5e-4;
                                                   r.training.decay_layers = {"layer0"};
                                                 }},
                                         Variant{"gat", [](Recipe& r) { r.model.name = "gat"; }},
                                         Variant{"sage_sampled",
                                                 [](Recipe& r) {
                                                   r.model.name = "sage";
                                                   r.data.fan_out = {3, 3};
                                                   r.model.input_dropout = 0.1;
                                                 }}),
                         [](const auto& instance) { return instance.param.name; });

class NodeRefusals : public testing::Test {
 protected:
  NodeRefusals() {
    write_papers(folder_ / "data");
    recipe_ = node_recipe(folder_ / "data");
  }
  std::string message() {
    return user_error([&] { make_task(recipe_); });
  }

  static std::vector<bool> chosen(const std::vector<LayerSize>& sizes) {
    std::vector<bool> result;
    for (const LayerSize& layer : sizes) result.push_back(layer.is_chosen);
    return result;
  }

  const ScratchFolder folder_;
  Recipe recipe_;
};

TEST_F(NodeRefusals, DataWithoutASplit) {
  recipe_.data.node_split = "data";
  EXPECT_TRUE(contains(message(), "has no split", "--node-split"));
}

TEST_F(NodeRefusals, SplitsThatAreNone) {
  for (const char* split : {"", "0.6", "0.6:", "20:30:1", "a:b", "-1:2"}) {
    recipe_.data.node_split = split;
    EXPECT_TRUE(contains(message(), "expected")) << split;
  }
  recipe_.data.node_split = "0.9:0.2";
  EXPECT_TRUE(contains(message(), "shares between 0 and 1"));
  recipe_.data.node_split = "2000:30";
  EXPECT_TRUE(contains(message(), "class 0 has"));
}

TEST_F(NodeRefusals, FanOutsThatDoNotFit) {
  recipe_.data.fan_out = {3, 3};
  EXPECT_TRUE(contains(message(), "fan-out is for model sage"));
  recipe_.model.name = "sage";
  recipe_.model.layers = 3;
  EXPECT_TRUE(contains(message(), "fan-out has 2 numbers, layers is 3"));
  recipe_.model.layers = 2;
  recipe_.training.batch = 1000;
  EXPECT_TRUE(contains(message(), "batch is 1000", "training nodes"));
}

TEST_F(NodeRefusals, ModelsThatDoNotFit) {
  recipe_.model.name = "lstm";
  EXPECT_TRUE(contains(message(), "expected one of gcn, sage, gat"));
  recipe_.model.name = "gat";
  recipe_.model.heads = 3;
  EXPECT_TRUE(contains(message(), "heads is 3", "divisor of hidden, 16"));
}

// `lowtide cost` asks the first, training the second.
TEST_F(NodeRefusals, BitsOfLayersThatHaveRules) {
  recipe_.precision.layer_bits = {"layer0=8"};
  const auto task = make_task(recipe_);
  EXPECT_EQ(chosen(shape_of_task(recipe_).sizes), (std::vector{false, true}));
  EXPECT_EQ(chosen(layer_sizes(task->model(), task->layers())), (std::vector{false, true}));
  recipe_.precision.layer_bits = {"layer*=8"};
  recipe_.precision.schedule = "waterfill 3:8 every=5 budget=0.63";
  EXPECT_TRUE(
      contains(user_error([&] { train(recipe_, folder_ / "run"); }), "this network has none without a rule"));
}

}  // namespace
}  // namespace lowtide
