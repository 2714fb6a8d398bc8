#include <fmt/format.h>

#include <array>
#include <filesystem>

#include "lowtide/models/cifar_mobilenet_v2.h"
#include "lowtide/models/cifar_resnet.h"
#include "lowtide/nn/quant_layer.h"
#include "tests/golden/golden_file.h"

namespace lowtide {
namespace {

using NamedTensors = std::map<std::string, torch::Tensor>;

struct Renaming {
  std::string ours, recorded;
};

// The names of the original experiments for ours.
std::string recorded_name(std::string name) {
  static const std::array kRenamings{
      Renaming{"group1.0", "group1_layer0"},
      Renaming{"group2.0", "group2_layer0"},
      Renaming{"group3.0", "group3_layer0"},
      Renaming{"activation_min", "quantize_input.running_zero_point"},
      Renaming{"activation_range", "quantize_input.running_range"},
      Renaming{"running_variance", "running_var"},
      Renaming{"norm", "bn"},
  };
  for (const Renaming& renaming : kRenamings) {
    if (const auto at = name.find(renaming.ours); at != std::string::npos) {
      name.replace(at, renaming.ours.size(), renaming.recorded);
    }
  }
  return name;
}

std::string resnet_name(std::string name) {
  if (const auto at = name.find("shortcut_norm"); at != std::string::npos) name.replace(at, 13, "norm3");
  if (const auto at = name.find("shortcut"); at != std::string::npos) name.replace(at, 8, "downsample");
  return recorded_name(name);
}

std::string mobilenet_name(std::string name) {
  if (const auto at = name.find("shortcut_norm"); at != std::string::npos) name.replace(at, 13, "norm4");
  return recorded_name(name);
}

using NameOf = std::string (*)(std::string);

// The classifier's own range is not in the files: it is fp32 in all of them.
bool is_recorded(const std::string& name) { return !name.starts_with("fc.activation"); }

void load(torch::nn::Module& model, const NamedTensors& recorded, NameOf name_of) {
  const torch::NoGradGuard no_grad;
  for (auto& item : model.named_parameters()) item.value().copy_(recorded.at(name_of(item.key())));
  for (auto& item : model.named_buffers()) {
    if (is_recorded(item.key()))
      item.value().copy_(recorded.at(name_of(item.key())).view(item.value().sizes()));
  }
}

std::shared_ptr<Execution> execution_without_noise() {
  auto execution = std::make_shared<Execution>();
  execution->engine = engine_under_test();
  execution->stochastic = false;
  return execution;
}

torch::Tensor in_one_row(const std::vector<torch::Tensor>& tensors) {
  std::vector<torch::Tensor> flat;
  for (const torch::Tensor& tensor : tensors) flat.push_back(tensor.detach().contiguous().flatten());
  return torch::cat(flat);
}

double distance(const torch::Tensor& a, const torch::Tensor& b) {
  return ((a - b).norm() / b.norm()).item<double>();
}

// Multiplies parameters by 1 + perturbation · normal noise.
void perturb(torch::nn::Module& model, double perturbation) {
  const torch::NoGradGuard no_grad;
  for (auto& parameter : model.parameters()) parameter.mul_(1 + perturbation * torch::randn_like(parameter));
}

// A difference in the last bit moves the code of a value that lies on the border of two codes. Whether that
// happens depends on the order in which a processor's kernels sum, so no tolerance in digits holds on every
// machine behind several layers. What holds is this: the recorded result is no further from ours than ours is
// from itself when its parameters are off by 1e-7, one rounding of a float. Where no code lies on a border
// that is some 1e-7 too, and `rounding` is what is allowed at least: the sums' own rounding.
void expect_near(const std::string& what, const torch::Tensor& ours,
                 const std::vector<torch::Tensor>& neighbours, const torch::Tensor& expected,
                 double rounding) {
  double spread = 0;
  for (const torch::Tensor& neighbour : neighbours) spread = std::max(spread, distance(neighbour, ours));
  EXPECT_LE(distance(expected, ours), std::max(rounding, 1.5 * spread)) << what;
}

constexpr double kPerturbation = 1e-7;
constexpr int kNeighbours = 6;

class GoldenMobileNetV2Block : public testing::TestWithParam<int> {
 protected:
  struct Result {
    torch::Tensor y, grad_x, gradients, statistics;
  };

  Result run(double perturbation) {
    const auto cfg = golden_[prefix_ + "cfg"].accessor<std::int64_t, 1>();
    const auto execution = execution_without_noise();
    execution->bits = {static_cast<int>(cfg[4]), static_cast<int>(cfg[5])};
    InvertedResidual block(cfg[0], cfg[1], cfg[2], cfg[3]);
    attach_layers(*block, execution, {});
    // Recorded after the one training call: the running statistics are its result, the parameters its input.
    load(*block, golden_.under(prefix_ + "init."), mobilenet_name);
    for (auto& item : block->named_buffers())
      item.value().fill_(item.key().ends_with("running_variance") ? 1 : 0);
    perturb(*block, perturbation);
    const torch::Tensor x = golden_[prefix_ + "x"].clone().requires_grad_();
    Result result;
    result.y = block(x);
    result.y.backward(golden_[prefix_ + "grad_y"]);
    result.grad_x = x.grad();
    std::vector<torch::Tensor> gradients;
    for (const auto& parameter : block->parameters()) gradients.push_back(parameter.grad());
    result.gradients = in_one_row(gradients);
    result.statistics = in_one_row(block->buffers());
    parameter_names_ = block->named_parameters().keys();
    buffer_names_ = block->named_buffers().keys();
    return result;
  }

  torch::Tensor recorded(const std::string& part, const std::vector<std::string>& names) const {
    std::vector<torch::Tensor> tensors;
    for (const std::string& name : names) tensors.push_back(golden_[prefix_ + part + mobilenet_name(name)]);
    return in_one_row(tensors);
  }

  const GoldenFile golden_{"mobilenetv2_block.pt"};
  const std::string prefix_ = fmt::format("m{}.", GetParam());
  std::vector<std::string> parameter_names_, buffer_names_;
};

TEST_P(GoldenMobileNetV2Block, OutputGradientsAndStatistics) {
  torch::manual_seed(1);
  const Result ours = run(0);
  std::vector<Result> neighbours;
  for (int i = 0; i < kNeighbours; ++i) neighbours.push_back(run(kPerturbation));
  const auto expect = [&](const std::string& what, torch::Tensor Result::*part,
                          const torch::Tensor& expected) {
    std::vector<torch::Tensor> parts;
    for (const Result& neighbour : neighbours) parts.push_back(neighbour.*part);
    expect_near(what, ours.*part, parts, expected, 2e-5);
  };
  expect("y", &Result::y, golden_[prefix_ + "y"]);
  expect("grad_x", &Result::grad_x, golden_[prefix_ + "grad_x"]);
  expect("gradients", &Result::gradients, recorded("grad.", parameter_names_));
  expect("statistics", &Result::statistics, recorded("init.", buffer_names_));
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenMobileNetV2Block, testing::Range(0, 3));

class GoldenCifarResNet8 : public testing::Test {
 protected:
  GoldenCifarResNet8() : model_(make_cifar_resnet(8, 3, 10)), execution_(execution_without_noise()) {
    attach_layers(*model_, execution_, LayerRules(model_->default_rules()));
  }

  const GoldenFile golden_{"cifar_resnet8.pt"};
  const std::shared_ptr<ImageModel> model_;
  const std::shared_ptr<Execution> execution_;
};

// A code that lies on a border falls to either side by a rounding, and moves the logits by more than 1e-4: an engine
// that sums in another order than the recording's may be as far from it as one rounding takes its own.
TEST_F(GoldenCifarResNet8, EvaluationOfTheTrainedNetwork) {
  model_->eval();
  execution_->bits = {8, 8};
  const auto logits = [&](double perturbation) {
    load(*model_, golden_.under("final."), resnet_name);
    perturb(*model_, perturbation);
    return model_->forward(golden_["eval.x"]).detach();
  };
  torch::manual_seed(1);
  const torch::Tensor ours = logits(0);
  std::vector<torch::Tensor> neighbours;
  for (int i = 0; i < kNeighbours; ++i) neighbours.push_back(logits(kPerturbation));
  expect_near("evaluation", ours, neighbours, golden_["eval.logits"], 1e-4);
}

// What three steps of training leave behind: all that the file records of them.
struct Replay {
  std::vector<torch::Tensor> logits, gradients;  // a step each; gradients of all parameters in one row
  torch::Tensor final;                           // all parameters in one row
};

// The file's `init.*` were recorded after the last step (they equal `final.*`, and their batch counters say
// 3), and the gradients of each step hold those of the last. The start below was recovered: the file's inputs
// are the stream of torch's generator with seed 1 from number 217,901 on, and the weights are drawn from the
// numbers before them (normal, deviation sqrt(2 / (k² · out)); the classifier's sqrt(2 / 640), its bias
// uniform in ±1/8).
NamedTensors recorded_start(const GoldenFile& golden) {
  NamedTensors start = golden.under("init.");
  if (start.at("bn1.num_batches_tracked").item<std::int64_t>() == 0) return start;
  return GoldenFile(std::filesystem::path(LOWTIDE_GOLDEN_DIR) / "cifar_resnet8_start.pt").under("init.");
}

class GoldenCifarResNet8Training : public GoldenCifarResNet8 {
 protected:
  static constexpr int kSteps = 3;

  // With the start's parameters off by `perturbation`, relative.
  Replay replay(double perturbation) {
    load(*model_, recorded_start(golden_), resnet_name);
    perturb(*model_, perturbation);
    torch::optim::SGD sgd(model_->parameters(),
                          torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(1e-4));
    Replay result;
    for (int step = 0; step < kSteps; ++step) {
      execution_->bits = {static_cast<int>(recorded(step, "bits").item<std::int64_t>()), 8};
      model_->zero_grad();
      const torch::Tensor logits = model_->forward(recorded(step, "x"));
      torch::cross_entropy_loss(logits, recorded(step, "y")).backward();
      result.logits.push_back(logits.detach());
      std::vector<torch::Tensor> gradients;
      for (const auto& parameter : model_->parameters()) gradients.push_back(parameter.grad());
      result.gradients.push_back(in_one_row(gradients));
      sgd.step();
    }
    result.final = in_one_row(model_->parameters());
    return result;
  }

  const torch::Tensor& recorded(int step, const std::string& what) const {
    return golden_["step" + std::to_string(step) + "." + what];
  }

  torch::Tensor recorded_row(const std::string& prefix) const {
    std::vector<torch::Tensor> tensors;
    for (const auto& item : model_->named_parameters())
      tensors.push_back(golden_[prefix + resnet_name(item.key())]);
    return in_one_row(tensors);
  }
};

// Each step enlarges what a rounding changed: a start that is off by 1e-7 gives other logits by 1e-3 in the
// first step, 5e-2 in the second and another gradient altogether in the third. It finds mistakes all the
// same: gradients rounded to the forward bits (8, 5, 3) instead of 8 put the last gradient twelve times as
// far as its neighbours.
TEST_F(GoldenCifarResNet8Training, RecordedRunIsOneOfOurs) {
  torch::manual_seed(1);
  const Replay ours = replay(0);
  std::vector<Replay> neighbours;
  for (int i = 0; i < kNeighbours; ++i) neighbours.push_back(replay(kPerturbation));
  const auto expect = [&](const std::string& what, const auto& part, const torch::Tensor& expected) {
    std::vector<torch::Tensor> parts;
    for (const Replay& neighbour : neighbours) parts.push_back(part(neighbour));
    expect_near(what, part(ours), parts, expected, 0);
  };
  for (int step = 0; step < kSteps; ++step) {
    const std::string prefix = "step" + std::to_string(step) + ".";
    expect(
        prefix + "logits", [&](const Replay& r) { return r.logits[step]; }, recorded(step, "logits"));
    const torch::Tensor gradient = recorded_row(prefix + "grad.");
    if (step + 1 < kSteps && gradient.equal(recorded_row("step2.grad."))) continue;  // recorded too late
    expect(
        prefix + "gradients", [&](const Replay& r) { return r.gradients[step]; }, gradient);
  }
  expect(
      "final parameters", [](const Replay& r) { return r.final; }, recorded_row("final."));
}

}  // namespace
}  // namespace lowtide
