#include "lowtide/models/bert_weights.h"
#include "lowtide/nn/quant_layer.h"
#include "tests/golden/layer_check.h"
#include "tests/golden/step_check.h"

namespace lowtide {
namespace {

constexpr std::int64_t kHeads = 3;  // the one size that no tensor tells
constexpr int kErrorBits = 8;

BertConfig config_of(const Recording& weights) {
  const Recording bert = weights.under("bert.");
  const torch::Tensor& words = bert["embeddings.word_embeddings.weight"];
  return {.vocabulary = words.size(0),
          .hidden = words.size(1),
          .layers = static_cast<std::int64_t>(bert.numbered("encoder.layer.").size()),
          .heads = kHeads,
          .feed_forward = bert["encoder.layer.0.intermediate.dense.weight"].size(0),
          .positions = bert["embeddings.position_embeddings.weight"].size(0),
          .dropout = 0,
          .attention_dropout = 0};
}

// Of a parameter or of a layer's running range.
std::string recorded_name(const std::string& name) {
  const std::size_t leaf = name.rfind('.') + 1;
  const std::string kind = name.substr(leaf);
  std::string recorded = published_name(name);
  if (kind == "activation_min" || kind == "activation_range") {
    recorded = recorded.substr(0, recorded.size() - kind.size()) + "quantize_input." +
               (kind == "activation_min" ? "running_zero_point" : "running_range");
  }
  return recorded.starts_with("classifier") ? recorded : "bert." + recorded;
}

std::string recorded_layer(const std::string& name) {
  const std::string kLeaf = ".weight";
  if (name.ends_with("scores") || name.ends_with("context"))
    return "";  // the products between recorded layers
  const std::string weight = recorded_name(name + kLeaf);
  return weight.substr(0, weight.size() - kLeaf.size());
}

class GoldenBert : public testing::Test {
 protected:
  GoldenBert() {
    attach_layers(model_, execution_, LayerRules());
    model_.to(device_under_test());
  }

  Recording after(std::size_t step) const {
    return step + 1 < steps_.size() ? steps_[step + 1].under("before.") : file_.under("final.");
  }

  StepResult run(const Recording& step, Bits bits) {
    load(model_, step.under("before."), recorded_name);
    execution_->bits = bits;
    model_.zero_grad();
    const torch::Tensor scores =
        model_.forward({step["input_ids"], step["token_type_ids"], step["attention_mask"]});
    return step_from(scores, step["y"], model_, recorded_name);
  }

  const Recording file_{"bert_classifier.pt"};
  const std::vector<Recording> steps_ = file_.numbered("step");
  BertClassifier model_{config_of(file_.under("init.")), file_["init.classifier.bias"].size(0)};
  const std::shared_ptr<Execution> execution_ = execution_at({});
};

Bits bits_of(const Recording& step) { return {static_cast<int>(step.number("bits")), kErrorBits}; }

TEST_F(GoldenBert, EachLinearLayerByItself) {
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const Recording& step = steps_[i];
    const Recording before = step.under("before.");
    for (const std::string& layer : step.layers()) {
      const Recording io = step.under("io." + layer + ".");
      const ErrorRange error = io["x"].dim() == 3 ? ErrorRange::kPosition : ErrorRange::kTensor;
      QuantLinear linear =
          recorded_linear(before[layer + ".weight"], before[layer + ".bias"], error, bits_of(step));
      load_running_range(*linear, before, layer);
      expect_linear(linear, io);
      const double tolerance = sum_tolerance(io["y"].numel() / io["y"].size(-1));
      const torch::Tensor &weight = step["grad." + layer + ".weight"],
                          &bias = step["grad." + layer + ".bias"];
      EXPECT_TRUE(close_to(linear->weight.grad(), weight, tolerance)) << io.name();
      // A bias of all keys moves all scores of a row alike, which the softmax does not see: what is left of its gradient are
      // the roundings of a sum that cancels, to be seen beside the errors that it sums.
      const torch::Tensor errors = io["grad_y"].abs().sum().view({1});
      EXPECT_TRUE(close_to(torch::cat({linear->bias.grad(), errors}), torch::cat({bias, errors}), tolerance))
          << io.name();
      expect_running_range(*linear, after(i), layer);
    }
  }
}

// Attention between recorded tensors: from what query, key and value gave to what the layer behind it read, and back.
struct Attention {
  torch::Tensor context, query, key, value;  // the last three are gradients
};
Attention attend(const Recording& io, const torch::Tensor& present, Bits bits) {
  const auto part = [&](const char* name, const char* what) -> const torch::Tensor& {
    return io[std::string("self.") + name + "." + what];
  };
  const torch::Tensor query = part("query", "y").clone().requires_grad_(),
                      key = part("key", "y").clone().requires_grad_(),
                      value = part("value", "y").clone().requires_grad_();
  const std::int64_t items = query.size(0), length = query.size(1), units = query.size(2) / kHeads;
  const auto heads = [&](const torch::Tensor& x) {
    return x.view({items, length, kHeads, units}).transpose(1, 2).reshape({-1, length, units});
  };
  QuantProduct scores, context;
  scores->attach(execution_at(bits), "scores", 0);
  context->attach(execution_at(bits), "context", 1);
  const torch::Tensor score = scores->forward(heads(query), heads(key).transpose(1, 2), items) /
                              std::sqrt(static_cast<double>(units));
  const torch::Tensor absent = present.eq(0).view({items, 1, 1, length});
  const torch::Tensor weights = score.view({items, kHeads, length, length})
                                    .masked_fill(absent, -std::numeric_limits<float>::infinity())
                                    .softmax(-1);
  const torch::Tensor y = context->forward(weights.view({-1, length, length}), heads(value), items)
                              .view({items, kHeads, length, units})
                              .transpose(1, 2)
                              .reshape({items, length, kHeads * units});
  y.backward(io["output.dense.grad_x"]);
  return {y.detach(), query.grad(), key.grad(), value.grad()};
}

// The weights that the softmax gives are quantised again, and so is the error behind it: one code may fall either way.
TEST_F(GoldenBert, EachAttentionByItself) {
  for (const Recording& step : steps_) {
    for (const Recording& layer : step.numbered("io.bert.encoder.layer.")) {
      SCOPED_TRACE(layer.name());
      const Recording io = layer.under("attention.");
      const Attention ours = attend(io, step["attention_mask"], bits_of(step)),
                      fine = attend(io, step["attention_mask"], kFine);
      EXPECT_TRUE(as_rounded(io["output.dense.x"], ours.context, fine.context, 0.5));
      EXPECT_TRUE(as_rounded(io["self.query.grad_y"], ours.query, fine.query, 0.5)) << "query";
      EXPECT_TRUE(as_rounded(io["self.key.grad_y"], ours.key, fine.key, 0.5)) << "key";
      EXPECT_TRUE(as_rounded(io["self.value.grad_y"], ours.value, fine.value, 0.5)) << "value";
    }
  }
}

TEST_F(GoldenBert, EachStepFromItsOwnStart) {
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const Recording& step = steps_[i];
    SCOPED_TRACE(step.name());
    StepResult ours;
    const bool same =
        has_recorded_codes(*execution_, step, recorded_layer, [&] { ours = run(step, bits_of(step)); });
    const StepResult recorded{step["logits"], step["loss"], step.under("grad.").tensors(),
                              recorded_like(ours.statistics, after(i))};
    expect_step(recorded, ours, run(step, {same ? bits_of(step).forward : kFineBits, kFineBits}), {});
  }
}

}  // namespace
}  // namespace lowtide
