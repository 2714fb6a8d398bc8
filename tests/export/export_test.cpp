// Networks as graphs against their own evaluation: in ONNX Runtime, and by the runner that measures them without it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lowtide/engine/engine.h"
#include "lowtide/export/export_network.h"
#include "lowtide/export/graph_runner.h"
#include "lowtide/models/bert.h"
#include "lowtide/models/image_model.h"
#include "lowtide/models/initialise.h"
#include "lowtide/models/language_model.h"
#include "lowtide/models/retinanet.h"
#include "lowtide/nn/quant_layer.h"
#include "lowtide/tasks/task.h"
#include "lowtide/train/checkpoint.h"
#include "lowtide/train/run_folder.h"
#include "lowtide/train/trainer.h"
#include "tests/export/onnxruntime.h"
#include "tests/io/scratch.h"
#include "tests/testing.h"
#include "tests/train/small_run.h"

namespace lowtide {
namespace {

using Tensors = std::vector<torch::Tensor>;

constexpr std::int64_t kItems = 2, kLength = 7, kWords = 11;

torch::Tensor words(torch::IntArrayRef sizes, std::uint64_t seed) {
  return uniform(sizes, 0, kWords, seed).to(torch::kLong);
}

// A network, and what it reads and says; as tensors, whatever its own types.
struct Network {
  std::string name;
  std::shared_ptr<torch::nn::Module> model;
  std::vector<std::string> rules;
  std::function<Tensors(std::uint64_t seed)> inputs;
  std::function<Tensors(const Tensors&)> forward;
};

Network image_network(const std::string& name, std::int64_t side) {
  const std::shared_ptr<ImageModel> model = image_model(name).make(3, 10);
  initialise(*model, 1);
  return {name, model, model->default_rules(),
          [side](std::uint64_t seed) {
            return Tensors{normal({kItems, 3, side, side}, seed)};
          },
          [model](const Tensors& in) { return Tensors{model->forward(in[0])}; }};
}

Network language_network(const std::string& name) {
  const LanguageModelOptions options{
      .words = kWords, .units = 12, .layers = 2, .heads = 3, .feed_forward = 20};
  const std::shared_ptr<LanguageModel> model = make_language_model(name, options);
  initialise(*model, 1);
  const auto inputs = [model](std::uint64_t seed) {
    Tensors in{words({kLength, kItems}, seed)};
    for (const auto& [part, tensor] : model->initial_state(kItems)) in.push_back(tensor);
    return in;
  };
  const auto forward = [model](const Tensors& in) {
    NamedTensors state = model->initial_state(kItems);
    Tensors out{model->forward(in[0], state)};
    for (const auto& [part, tensor] : state) out.push_back(tensor);
    return out;
  };
  return {name, model, {}, inputs, forward};
}

Network bert() {
  BertConfig config;
  config.vocabulary = kWords;
  config.hidden = 12;
  config.layers = 2;
  config.heads = 3;
  config.feed_forward = 20;
  config.positions = kLength + 2;
  const auto model = std::make_shared<BertClassifier>(config, 3);
  initialise(*model, 1);
  const auto inputs = [](std::uint64_t seed) {
    const torch::Tensor ids = words({kItems, kLength}, seed);
    torch::Tensor present = torch::ones_like(ids);
    present[1].slice(0, kLength - 2).zero_();
    return Tensors{ids, ids.remainder(2), present};
  };
  return {"bert", model, {}, inputs, [model](const Tensors& in) {
            return Tensors{model->forward({in[0], in[1], in[2]})};
          }};
}

Network retinanet() {
  const auto model = std::make_shared<RetinaNet>(18, 4);
  model->initialise(1);
  const torch::NoGradGuard no_grad;
  for (auto& item : model->named_parameters()) {  // the heads' last layers begin at 0
    if (item.key().ends_with("head.output.weight"))
      item.value().copy_(0.01 * normal(item.value().sizes(), 7));
  }
  for (auto& item : model->named_buffers()) {  // frozen normalisations, of no particular network
    if (item.key().ends_with("running_variance")) item.value().fill_(2);
  }
  return {"retinanet18",
          model,
          {},
          [](std::uint64_t seed) {
            return Tensors{normal({2, 3, 64, 96}, seed)};
          },
          [model](const Tensors& in) {
            const DetectorOutput output = model->forward(in[0]);
            return Tensors{output.probabilities, output.deltas};
          }};
}

Network make_network(const std::string& name) {
  if (name == "lstm" || name == "transformer") return language_network(name);
  if (name == "bert") return bert();
  if (name == "retinanet18") return retinanet();
  return image_network(name, name.starts_with("resnet") ? 32 : 16);
}

struct Case {
  std::string network;
  int bits;
};

class Exported : public testing::TestWithParam<Case> {
 protected:
  // Statistics and ranges as of a network that has seen something.
  Exported() : network_(make_network(GetParam().network)) {
    execution_->engine = make_engine("integer");  // whose order of operations graphs have
    attach_layers(*network_.model, execution_, LayerRules(network_.rules));
    const torch::NoGradGuard no_grad;
    network_.model->train();
    for (std::uint64_t seed = 100; seed < 108; ++seed) network_.forward(network_.inputs(seed));
    network_.model->eval();
    execution_->bits = {GetParam().bits, 8};
    inputs_ = network_.inputs(1);
    expected_ = network_.forward(inputs_);
  }

  OnnxGraph exported(ExportForm form) const {
    return export_network(*network_.model, network_.name, {form, execution_->bits}, kLength + 2);
  }

  const ScratchFolder folder_;
  const std::shared_ptr<Execution> execution_ = execution_at({8, 8});
  const Network network_;
  Tensors inputs_, expected_;
};

// Whether a code falls one way or the other may hang on the last bit of a float, and moves everything behind it.
struct Tolerance {
  double median, max;  // of the largest output
};

bool is_deep(const std::string& network) {
  return network == "resnet50" || network == "cifar-mobilenet-v2" || network == "retinanet18";
}

// What behind sums of floats, in an order of their own, or behind functions that a runtime rounds in its own way, is quantised.
// Small networks have few codes that fall the other way, so half of the outputs at least are equal to 1e-4. Deep ones at random
// weights make much of little: they are held to more at 16 bits, whose steps are so small that one does not matter, while a range
// that is not the layer's would.
Tolerance where_codes_can_fall(const Case& of) {
  if (of.bits == 0) return {1e-4, 1e-4};
  if (of.bits == 16) return {1e-3, 5e-3};
  return is_deep(of.network) ? Tolerance{0.1, 0.3} : Tolerance{1e-4, 0.05};
}

// Where codes are made of sums of bytes and of single operations on floats, none falls the other way. What is left is behind the last
// of them: a mean and a product in fp32, some hundred roundings of 6e-8, or a sigmoid.
Tolerance of_exact_form(const Case& of) {
  const bool is_all_bytes = of.network.starts_with("cifar-") || of.network.starts_with("retinanet");
  return is_all_bytes && of.bits <= 8 ? Tolerance{1e-5, 1e-5} : where_codes_can_fall(of);
}

void expect_close(const Tensors& actual, const Tensors& expected, const Tolerance& tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(actual[i].sizes(), expected[i].sizes());
    const torch::Tensor difference = (actual[i] - expected[i]).abs() / expected[i].abs().max();
    EXPECT_LE(difference.median().item<double>(), tolerance.median) << "output " << i;
    EXPECT_LE(difference.max().item<double>(), tolerance.max) << "output " << i;
  }
}

TEST_P(Exported, ExactIsTheEvaluation) {
  const OnnxGraph graph = exported(ExportForm::kExact);
  const Tolerance tolerance = of_exact_form(GetParam());
  expect_close(GraphRunner(graph)(inputs_), expected_, tolerance);
  if (!has_onnxruntime()) GTEST_SKIP() << "onnxruntime-node is not installed (scripts/setup.sh tests)";
  const Tensors outputs = run_in_onnxruntime(graph, inputs_, folder_.path());
  expect_close(outputs, expected_, tolerance);
  if (GetParam().network == "retinanet18" && GetParam().bits <= 8) {
    EXPECT_TRUE(same(outputs.at(1), expected_[1])) << "deltas, behind which no floats are added up";
  }
}

class ExportedAsIntegers : public Exported {};

TEST_P(ExportedAsIntegers, IsWhatIsMeasured) {
  const OnnxGraph graph = exported(ExportForm::kQdq);
  const Tensors ours = GraphRunner(graph)(inputs_);
  if (GetParam().bits == 8) expect_close(ours, expected_, {0.3, 0.5});
  if (!has_onnxruntime()) GTEST_SKIP() << "onnxruntime-node is not installed (scripts/setup.sh tests)";
  expect_close(run_in_onnxruntime(graph, inputs_, folder_.path()), ours, where_codes_can_fall(GetParam()));
}

// Of more than 8 bits there is no form of integers.
std::vector<Case> cases(int most_bits) {
  std::vector<Case> all{{"cifar-resnet8", 12}, {"cifar-resnet20", 8}, {"cifar-resnet20", 3}};
  for (const char* network : {"cifar-resnet8", "lstm", "transformer", "bert"}) {
    for (const int bits : {8, 4, 0}) all.push_back({network, bits});
  }
  for (const char* network : {"cifar-mobilenet-v2", "retinanet18"}) {
    for (const int bits : {16, 8, 5}) all.push_back({network, bits});
  }
  for (const int bits : {16, 8}) all.push_back({"resnet50", bits});
  std::erase_if(all, [&](const Case& one) { return one.bits > most_bits; });
  return all;
}

std::string name_of(const testing::TestParamInfo<Case>& info) {
  std::string name = fmt::format("{}_{}", info.param.network, info.param.bits);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, Exported, testing::ValuesIn(cases(16)), name_of);
INSTANTIATE_TEST_SUITE_P(All, ExportedAsIntegers, testing::ValuesIn(cases(8)), name_of);

// The test set of a network that was trained, evaluated by ONNX Runtime in place of the network.
TEST(Export, ATrainedCheckpointIsWorthTheSameInARuntime) {
  if (!has_onnxruntime()) GTEST_SKIP() << "onnxruntime-node is not installed (scripts/setup.sh tests)";
  const ScratchFolder folder;
  write_small_dataset(folder / "data");
  const Recipe recipe = small_recipe(folder / "data");
  Trainer(recipe, "test").run(folder / "run", /*resume=*/false);
  const auto task = make_task(recipe);
  read_checkpoint_tensors(RunPaths{folder / "run"}.checkpoint(recipe.training.steps),
                          model_tensors(task->model()));
  const Bits bits{6, 6};
  const Evaluation here = task->evaluate(Split::kTest, bits);
  for (const ExportForm form : {ExportForm::kExact, ExportForm::kQdq}) {
    const OnnxGraph graph = export_network(task->model(), recipe.model.name, {form, bits});
    task->set_stand_in(GraphRunner(graph));
    const Evaluation measured = task->evaluate(Split::kTest, bits);
    task->set_stand_in(
        [&](const Tensors& inputs) { return run_in_onnxruntime(graph, inputs, folder.path()); });
    const Evaluation runtime = task->evaluate(Split::kTest, bits);
    EXPECT_EQ(runtime.items, 60);
    EXPECT_NEAR(runtime.loss, measured.loss, 1e-4);
    EXPECT_EQ(runtime.metric, measured.metric);
    if (form == ExportForm::kExact) {
      EXPECT_NEAR(runtime.loss, here.loss, 1e-4);
    }
  }
}

TEST(Export, RefusesWhatHasNoForm) {
  const torch::nn::Module other;
  EXPECT_TRUE(contains(user_error([&] { export_network(other, "gcn", {}); }), "gcn cannot be exported"));
  const std::shared_ptr<ImageModel> model = image_model("cifar-resnet8").make(3, 10);
  attach_layers(*model, execution_at({12, 12}), {});
  const auto wide = [&] { export_network(*model, "cifar-resnet8", {ExportForm::kQdq, {12, 12}}); };
  EXPECT_TRUE(contains(user_error(wide), "12 bits in the form qdq", "expected at most 8"));
}

struct OwnModel final : ImageModel {
  at::Tensor forward(const at::Tensor& images) override { return images; }
};

TEST(Export, AsksANetworkOfOnesOwnForItsLayout) {
  EXPECT_TRUE(contains(user_error([] { export_network(OwnModel(), "mine", {}); }),
                       "mine does not say what it is made of"));
}

}  // namespace
}  // namespace lowtide
