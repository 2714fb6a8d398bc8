#include "lowtide/models/cifar_resnet.h"
#include "lowtide/nn/quant_layer.h"
#include "lowtide/train/optimizer.h"
#include "tests/golden/image_names.h"
#include "tests/golden/layer_check.h"
#include "tests/golden/step_check.h"

namespace lowtide {
namespace {

constexpr int kErrorBits = 8;

// A ResNet-8 for the images and classes of recorded weights.
class RecordedResNet8 {
 public:
  explicit RecordedResNet8(const Recording& weights)
      : model(make_cifar_resnet(8, weights["conv1.weight"].size(1), weights["fc.weight"].size(0))) {
    attach_layers(*model, execution, LayerRules(model->default_rules()));
    model->to(device_under_test());
  }

  // From `before`, as if nothing had been before it. The statistics are those after the step.
  StepResult step(const Recording& before, const torch::Tensor& x, const torch::Tensor& y, Bits bits) {
    load(*model, before, resnet_name);
    execution->bits = bits;
    model->zero_grad();
    return step_from(model->forward(x), y, *model, resnet_name);
  }

  torch::Tensor evaluate(const Recording& weights, const torch::Tensor& x, Bits bits) {
    const torch::NoGradGuard no_grad;
    load(*model, weights, resnet_name);
    execution->bits = bits;
    model->eval();
    return model->forward(x);
  }

  const std::shared_ptr<Execution> execution = execution_at({});
  const std::shared_ptr<ImageModel> model;
};

class GoldenCifarResNet8 : public testing::Test {
 protected:
  // What was there after a step: before the next one, or at the end.
  Recording after(std::size_t step) const {
    return step + 1 < steps_.size() ? steps_[step + 1].under("before.") : golden_.under("final.");
  }

  const Recording golden_{"cifar_resnet8.pt"};
  const std::vector<Recording> steps_ = golden_.numbered("step");
  RecordedResNet8 network_{golden_.under("init.")};
};

TEST_F(GoldenCifarResNet8, EachStepFromItsOwnStart) {
  const Closeness closeness{.first_layers = {"conv1.", "bn1."}};
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const Recording& step = steps_[i];
    SCOPED_TRACE(step.name());
    const auto run = [&](Bits bits) {
      return network_.step(step.under("before."), step["x"], step["y"], bits);
    };
    const StepResult ours = run({static_cast<int>(step.number("bits")), kErrorBits});
    const StepResult recorded{step["logits"], step["loss"], step.under("grad.").tensors(),
                              recorded_like(ours.statistics, after(i))};
    expect_step(recorded, ours, run(kFine), closeness);
  }
}

TEST_F(GoldenCifarResNet8, EvaluationOfTheTrainedNetwork) {
  const auto logits = [&](Bits bits) {
    return network_.evaluate(golden_.under("final."), golden_["eval.x"], bits);
  };
  EXPECT_TRUE(as_rounded(golden_["eval.logits"], logits({8, 8}), logits(kFine), Closeness().forward));
}

// The recorded gradients lead our optimiser from each start to the next.
TEST_F(GoldenCifarResNet8, OptimiserStepsToTheNextStart) {
  TrainingOptions training;
  training.optimizer = "sgd";
  training.momentum = 0.9;
  training.weight_decay = 1e-4;
  load(*network_.model, golden_.under("init."), resnet_name);
  const auto optimizer = make_optimizer(training, *network_.model);
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    for (const auto& item : network_.model->named_parameters()) {
      item.value().mutable_grad() = steps_[i]["grad." + resnet_name(item.key())].clone();
    }
    optimizer->step(0.1, torch::zeros({}, torch::TensorOptions(torch::kBool).device(device_under_test())));
    for (const auto& item : network_.model->named_parameters()) {
      // Some four roundings a step.
      EXPECT_TRUE(close_to(item.value(), after(i)[resnet_name(item.key())], 1e-6)) << item.key();
    }
  }
}

class GoldenCifarResNet8Layers : public testing::Test {
 protected:
  StepResult run(Bits bits) {
    return network_.step(golden_.under("before."), golden_["x"], golden_["y"], bits);
  }
  StepResult recorded(const std::string& gradients) const {
    return {golden_["logits"], golden_["loss"], golden_.under(gradients).tensors(), {}};
  }

  const Recording golden_{"cifar_resnet8_layers.pt"};
  const int bits_ = static_cast<int>(golden_.number("bits"));
  RecordedResNet8 network_{golden_.under("before.")};
};

TEST_F(GoldenCifarResNet8Layers, EachConvolutionByItself) {
  for (const std::string& layer : golden_.layers()) {
    const Recording io = golden_.under("io." + layer + ".");
    QuantConv2d conv =
        recorded_conv(golden_["before." + layer + ".weight"], io["x"], io["y"], {bits_, kErrorBits});
    expect_conv(conv, io);
    const torch::Tensor& y = io["y"];
    EXPECT_TRUE(close_to(conv->weight.grad(), golden_["grad." + layer + ".weight"],
                         sum_tolerance(y.numel() / y.size(1))))
        << layer;
  }
}

TEST_F(GoldenCifarResNet8Layers, Step) {
  StepResult ours;
  const bool same = has_recorded_codes(*network_.execution, golden_, resnet_name, [&] {
    ours = run({bits_, kErrorBits});
  });
  expect_step(recorded("grad."), ours, run({same ? bits_ : kFineBits, kFineBits}), {});
}

// With errors that are not rounded nothing is left to fall either way where the codes are the recorded ones.
TEST_F(GoldenCifarResNet8Layers, StepWithErrorsThatAreNotRounded) {
  StepResult ours;
  const bool same = has_recorded_codes(*network_.execution, golden_, resnet_name, [&] {
    ours = run({bits_, 0});
  });
  expect_step(recorded("grad_fp32."), ours, same ? ours : run(kFine), {});
}

}  // namespace
}  // namespace lowtide
