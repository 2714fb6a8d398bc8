#include "lowtide/models/lstm_language_model.h"
#include "lowtide/nn/quant_layer.h"
#include "tests/golden/golden_file.h"

// The file was written after its two steps, with `init` and the gradients of step 0 overwritten: `init` equals `final`, and
// step 0's gradients are those of step 1. Plain SGD at a rate of 1 takes the weights before step 1 from the end: final plus
// the (clipped) gradient. Those before step 0 are where one step leads there, found by iteration.

namespace lowtide {
namespace {

struct Renaming {
  std::string ours, recorded;
};

const std::vector<Renaming> kParameters{
    {"embedding", "encoder.weight"},      {"lstm0.input_weight", "rnn.W.weight"},
    {"lstm0.bias", "rnn.W.bias"},         {"lstm0.hidden_weight", "rnn.U.weight"},
    {"decoder.weight", "decoder.weight"}, {"decoder.bias", "decoder.bias"}};
const std::vector<Renaming> kRanges{{"lstm0.input_min", "rnn.W.quantize_input.running_zero_point"},
                                    {"lstm0.input_range", "rnn.W.quantize_input.running_range"},
                                    {"lstm0.hidden_min", "rnn.U.quantize_input.running_zero_point"},
                                    {"lstm0.hidden_range", "rnn.U.quantize_input.running_range"},
                                    {"decoder.activation_min", "decoder.quantize_input.running_zero_point"},
                                    {"decoder.activation_range", "decoder.quantize_input.running_range"}};
constexpr std::int64_t kWords = 50, kUnits = 16, kBatch = 4;
constexpr double kClip = 0.25;
// Sums of up to 64 float32 products in another order, through seven steps in time.
constexpr double kTolerance = 1e-4;

class GoldenLstm : public testing::Test {
 protected:
  GoldenLstm() {
    execution_->engine = engine_under_test();
    execution_->stochastic = false;
    attach_layers(model_, execution_, LayerRules());
  }

  torch::Tensor parameter(const std::string& name) { return model_.named_parameters()[name]; }

  void load(const std::function<torch::Tensor(const std::string&)>& recorded) {
    const torch::NoGradGuard no_grad;
    for (const auto& [ours, theirs] : kParameters) parameter(ours).copy_(recorded(theirs));
  }

  // One step's forward and backward pass, and its clipped gradients.
  torch::Tensor step(const std::string& name) {
    execution_->bits = {static_cast<int>(file_[name + ".bits"].item<std::int64_t>()), 8};
    model_.zero_grad();
    const torch::Tensor logits = model_.forward(file_[name + ".x"], state_);
    torch::cross_entropy_loss(logits.view({-1, kWords}), file_[name + ".y"]).backward();
    torch::nn::utils::clip_grad_norm_(model_.parameters(), kClip);
    return logits.detach();
  }

  void start_from_step(const std::string& before) {
    state_ = model_.initial_state(kBatch);
    if (before.empty()) return;
    state_[0].second.copy_(file_[before + ".h"][0]);
    state_[1].second.copy_(file_[before + ".c"][0]);
  }

  void load_start_of_last_step() {
    load([&](const std::string& name) { return file_["final." + name] + file_["step1.grad." + name]; });
  }

  GoldenFile file_{"ptb_lstm.pt"};
  LstmLanguageModel model_{{.words = kWords, .units = kUnits, .layers = 1}};
  std::shared_ptr<Execution> execution_ = std::make_shared<Execution>();
  NamedTensors state_;
};

TEST_F(GoldenLstm, LastStep) {
  load_start_of_last_step();
  start_from_step("step0");
  const torch::Tensor logits = step("step1");
  EXPECT_TRUE(close_to(logits, file_["step1.logits"], kTolerance));
  EXPECT_TRUE(close_to(state_[0].second, file_["step1.h"][0], kTolerance)) << "hidden";
  EXPECT_TRUE(close_to(state_[1].second, file_["step1.c"][0], kTolerance)) << "cell";
  for (const auto& [ours, theirs] : kParameters) {
    EXPECT_TRUE(close_to(parameter(ours).grad(), file_["step1.grad." + theirs], kTolerance)) << ours;
  }
}

// Several starts lead to the same end, as the gradient jumps where a weight's code does; ours and the recorded one differ
// in some codes of 8 bits, each of which is 1/255 of its row's range. A gate, a range or a bit that is wrong is seen.
TEST_F(GoldenLstm, FirstStep) {
  load_start_of_last_step();
  std::map<std::string, torch::Tensor> after;
  for (const auto& [ours, theirs] : kParameters) after[ours] = parameter(ours).detach().clone();
  for (int iteration = 0; iteration < 20; ++iteration) {
    start_from_step("");
    step("step0");
    const torch::NoGradGuard no_grad;
    for (const auto& [ours, theirs] : kParameters)
      parameter(ours).copy_(after[ours] + parameter(ours).grad());
  }
  start_from_step("");
  const torch::Tensor logits = step("step0"), recorded = file_["step0.logits"];
  EXPECT_LE(((logits - recorded).norm() / recorded.norm()).item<double>(), 0.5 / 255);
}

TEST_F(GoldenLstm, EvaluationUsesTheRunningRanges) {
  load([&](const std::string& name) { return file_["final." + name]; });
  const torch::NoGradGuard no_grad;
  for (const auto& [ours, theirs] : kRanges) {
    model_.named_buffers()[ours].copy_(file_["final." + theirs].view({1}));
  }
  execution_->bits = {8, 8};
  model_.eval();
  start_from_step("");
  EXPECT_TRUE(close_to(model_.forward(file_["eval.x"], state_), file_["eval.logits"], kTolerance));
}

TEST_F(GoldenLstm, RunningRangesAfterTwoSteps) {
  load_start_of_last_step();  // the range of the words' embedding hardly moves between the two
  start_from_step("");
  step("step0");
  start_from_step("step0");
  step("step1");
  for (const auto& [ours, theirs] : kRanges) {
    EXPECT_TRUE(close_to(model_.named_buffers()[ours], file_["final." + theirs].view({1}), 2e-2)) << ours;
  }
}

}  // namespace
}  // namespace lowtide
