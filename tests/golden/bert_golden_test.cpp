#include "lowtide/models/bert_weights.h"
#include "lowtide/nn/quant_layer.h"
#include "tests/golden/golden_file.h"

// The file was written after both passes: the running ranges under `init` are those at the end, and the gradients of step 0
// are those of step 1. No weight changed between them, so the weights are right.

namespace lowtide {
namespace {

constexpr BertConfig kConfig{.vocabulary = 60,
                             .hidden = 24,
                             .layers = 2,
                             .heads = 3,
                             .feed_forward = 48,
                             .positions = 32,
                             .dropout = 0,
                             .attention_dropout = 0};
constexpr std::int64_t kLabels = 3;
// Sums of up to 480 float32 products in another order, through two layers.
constexpr double kTolerance = 1e-4;

std::string recorded_name(const std::string& parameter) {
  const std::string name = published_name(parameter);
  return name.starts_with("classifier") ? name : "bert." + name;
}

class GoldenBert : public testing::Test {
 protected:
  GoldenBert() {
    execution_->engine = engine_under_test();
    execution_->stochastic = false;
    attach_layers(model_, execution_, LayerRules());
    load();
  }

  // Times 1 + perturbation · normal noise.
  void load(double perturbation = 0, std::uint64_t seed = 0) {
    const torch::NoGradGuard no_grad;
    for (const auto& item : model_.named_parameters()) {
      const torch::Tensor recorded = file_["init." + recorded_name(item.key())];
      item.value().copy_(recorded * (1 + perturbation * normal(recorded.sizes(), seed)));
    }
  }

  struct Pass {
    torch::Tensor logits, loss;
  };
  Pass pass(const std::string& step) {
    execution_->bits = {static_cast<int>(file_[step + ".bits"].item<std::int64_t>()), 8};
    model_.zero_grad();
    const torch::Tensor logits = model_.forward(
        {file_[step + ".input_ids"], file_[step + ".token_type_ids"], file_[step + ".attention_mask"]});
    const torch::Tensor loss = torch::cross_entropy_loss(logits, file_[step + ".y"]);
    loss.backward();
    return {logits.detach(), loss.detach()};
  }

  GoldenFile file_{"bert_classifier.pt"};
  BertClassifier model_{kConfig, kLabels};
  std::shared_ptr<Execution> execution_ = std::make_shared<Execution>();
};

TEST_F(GoldenBert, Logits) {
  for (const std::string step : {"step0", "step1"}) {
    const Pass result = pass(step);
    EXPECT_TRUE(close_to(result.logits, file_[step + ".logits"], kTolerance)) << step;
    EXPECT_TRUE(close_to(result.loss, file_[step + ".loss"], kTolerance)) << step;
  }
}

// An error that lies half way between two codes goes to one or the other by the last bit of a sum: the recorded gradients
// are to be no further from ours than 1.5 times what ours move by when the weights are off by a rounding, as in
// models_golden_test.cpp, or kTolerance where they do not move.
TEST_F(GoldenBert, Gradients) {
  std::map<std::string, double> spread;
  pass("step1");
  std::map<std::string, torch::Tensor> ours;
  for (const auto& item : model_.named_parameters()) ours[item.key()] = item.value().grad().clone();
  for (std::uint64_t neighbour = 1; neighbour <= 6; ++neighbour) {
    load(1e-7, neighbour);
    pass("step1");
    for (const auto& item : model_.named_parameters()) {
      const double moved = (item.value().grad() - ours[item.key()]).abs().max().item<double>();
      spread[item.key()] = std::max(spread[item.key()], moved);
    }
  }
  for (const auto& item : model_.named_parameters()) {
    torch::Tensor recorded = file_["step1.grad." + recorded_name(item.key())];
    torch::Tensor gradient = ours[item.key()];
    // A bias of all keys moves all scores of a row alike, which the softmax does not see: what is left are roundings, to be
    // seen beside the weight's gradient.
    if (item.key().ends_with("key.bias")) {
      const std::string weight = item.key().substr(0, item.key().size() - 4) + "weight";
      const torch::Tensor beside = file_["step1.grad." + recorded_name(weight)].flatten();
      recorded = torch::cat({recorded, beside});
      gradient = torch::cat({gradient, beside});
    }
    const double moves = 1.5 * spread[item.key()] / recorded.abs().max().item<double>();
    EXPECT_LT(moves, 2.0 / 255) << item.key() << ": more than a code on a border";
    EXPECT_TRUE(close_to(gradient, recorded, std::max(kTolerance, moves))) << item.key();
  }
}

TEST_F(GoldenBert, RunningRanges) {
  pass("step0");
  pass("step1");
  for (const auto& item : model_.named_buffers()) {
    const std::size_t leaf = item.key().rfind('.');
    const std::string recorded = recorded_name(item.key().substr(0, leaf) + ".weight");
    const std::string which =
        item.key().substr(leaf) == ".activation_min" ? "running_zero_point" : "running_range";
    const std::string name = "init." + recorded.substr(0, recorded.size() - 6) + "quantize_input." + which;
    EXPECT_TRUE(close_to(item.value(), file_[name].view({1}), kTolerance)) << item.key();
  }
}

}  // namespace
}  // namespace lowtide
