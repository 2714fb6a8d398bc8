#include "lowtide/models/lstm_language_model.h"
#include "lowtide/nn/quant_layer.h"
#include "lowtide/train/optimizer.h"
#include "tests/golden/layer_check.h"
#include "tests/golden/step_check.h"

namespace lowtide {
namespace {

constexpr int kErrorBits = 8;
constexpr double kClip = 0.25;

std::string recorded_name(const std::string& ours) {
  static const std::map<std::string, std::string> kNames{
      {"embedding", "encoder.weight"},
      {"lstm0.input_weight", "rnn.W.weight"},
      {"lstm0.bias", "rnn.W.bias"},
      {"lstm0.hidden_weight", "rnn.U.weight"},
      {"lstm0.input_min", "rnn.W.quantize_input.running_zero_point"},
      {"lstm0.input_range", "rnn.W.quantize_input.running_range"},
      {"lstm0.hidden_min", "rnn.U.quantize_input.running_zero_point"},
      {"lstm0.hidden_range", "rnn.U.quantize_input.running_range"},
      {"decoder.weight", "decoder.weight"},
      {"decoder.bias", "decoder.bias"},
      {"decoder.activation_min", "decoder.quantize_input.running_zero_point"},
      {"decoder.activation_range", "decoder.quantize_input.running_range"}};
  return kNames.at(ours);
}

Bits bits_of(const Recording& step) { return {static_cast<int>(step.number("bits")), kErrorBits}; }

class GoldenLstm : public testing::Test {
 protected:
  GoldenLstm() {
    attach_layers(model_, execution_, LayerRules());
    model_.to(device_under_test());
  }

  Recording after(std::size_t step) const {
    return step + 1 < steps_.size() ? steps_[step + 1].under("before.") : file_.under("final.");
  }

  struct Window {
    StepResult result;   // gradients are clipped
    torch::Tensor norm;  // of the gradients, before
    torch::Tensor hidden, cell;
  };
  Window run(const Recording& step, Bits bits) {
    load(model_, step.under("before."), recorded_name);
    execution_->bits = bits;
    model_.zero_grad();
    NamedTensors state = model_.initial_state(step["x"].size(1));
    state[0].second.copy_(step["h_before"][0]);
    state[1].second.copy_(step["c_before"][0]);
    Window window;
    const torch::Tensor scores = model_.forward(step["x"], state);
    window.result = step_from(scores.flatten(0, 1), step["y"], model_, recorded_name);
    window.norm = clip_gradients(model_.parameters(), kClip);
    window.result.gradients = gradients_of(model_, recorded_name);
    window.hidden = state[0].second;
    window.cell = state[1].second;
    return window;
  }

  const Recording file_{"ptb_lstm.pt"};
  const std::vector<Recording> steps_ = file_.numbered("step");
  LstmLanguageModel model_{{.words = file_["init.encoder.weight"].size(0),
                            .units = file_["init.encoder.weight"].size(1),
                            .layers = 1}};
  const std::shared_ptr<Execution> execution_ = execution_at({});
};

// What one layer gives at each of its calls, and its gradients over all of them.
void expect_product(const Recording& step, const std::string& layer, const std::vector<Recording>& calls,
                    const Recording& after) {
  const Recording before = step.under("before.");
  const bool biased = before.has(layer + ".bias");
  QuantLinear linear =
      recorded_linear(before[layer + ".weight"], biased ? before[layer + ".bias"] : torch::Tensor(),
                      calls[0]["x"].dim() == 3 ? ErrorRange::kPosition : ErrorRange::kTensor, bits_of(step));
  load_running_range(*linear, before, layer);
  std::int64_t rows = 0;
  for (const Recording& io : calls) {
    expect_linear(linear, io);
    rows += io["y"].numel() / io["y"].size(-1);
  }
  const double norm = step["grad_norm"].item<double>(), clipped = std::min(1.0, kClip / (norm + 1e-6));
  EXPECT_TRUE(
      close_to(linear->weight.grad() * clipped, step["grad." + layer + ".weight"], sum_tolerance(rows)));
  if (biased) {
    EXPECT_TRUE(
        close_to(linear->bias.grad() * clipped, step["grad." + layer + ".bias"], sum_tolerance(rows)));
  }
  expect_running_range(*linear, after, layer);
}

TEST_F(GoldenLstm, EachProductByItself) {
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const Recording& step = steps_[i];
    for (const std::string layer : {"rnn.W", "rnn.U"}) {
      SCOPED_TRACE(step.name() + layer);
      expect_product(step, layer, step.numbered("io." + layer + ".t"), after(i));
    }
    SCOPED_TRACE(step.name() + "decoder");
    expect_product(step, "decoder", {step.under("io.decoder.")}, after(i));
  }
}

// A window is short: a code on a border is rare in it, and moves little.
TEST_F(GoldenLstm, EachStepFromItsOwnStart) {
  const Closeness closeness{.forward = 1, .gradient = 1};
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const Recording& step = steps_[i];
    SCOPED_TRACE(step.name());
    const Window ours = run(step, bits_of(step)), fine = run(step, kFine);
    const StepResult recorded{step["logits"].flatten(0, 1), step["loss"], step.under("grad.").tensors(),
                              recorded_like(ours.result.statistics, after(i))};
    expect_step(recorded, ours.result, fine.result, closeness);
    EXPECT_TRUE(as_rounded(step["h"][0], ours.hidden, fine.hidden, closeness.forward)) << "hidden";
    EXPECT_TRUE(as_rounded(step["c"][0], ours.cell, fine.cell, closeness.forward)) << "cell";
    // The range of some errors is at most √2 of their norm, and a code of 8 bits a 255th of that. Errors that are rounded anew
    // go to either side: they move the norm as one of them would, by 1/√12 of a code, or 0.4/255. So does what is linear in them.
    EXPECT_TRUE(close_to(ours.norm.flatten(), step["grad_norm"].flatten(), 1.0 / 255)) << "norm";
  }
}

TEST_F(GoldenLstm, EvaluationUsesTheRunningRanges) {
  const torch::NoGradGuard no_grad;
  load(model_, file_.under("final."), recorded_name);
  model_.eval();
  const auto logits = [&](Bits bits) {
    execution_->bits = bits;
    NamedTensors state = model_.initial_state(file_["eval.x"].size(1));
    return model_.forward(file_["eval.x"], state);
  };
  EXPECT_TRUE(as_rounded(file_["eval.logits"], logits({8, 8}), logits(kFine), 1));
}

}  // namespace
}  // namespace lowtide
