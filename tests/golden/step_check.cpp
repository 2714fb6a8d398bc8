#include "tests/golden/step_check.h"

#include <algorithm>

namespace lowtide {
namespace {

// A float32 sum of n numbers is off by √n 2^-24 of what they are, by some ten times that where they cancel: 1e-5 for n = 256.
// Behind ten layers it may be ten times as much.
constexpr double kSums = 1e-5;
constexpr double kLayersOfSums = 1e-4;

double distance(const torch::Tensor& a, const torch::Tensor& b) {
  return (a - b).to(torch::kDouble).norm().item<double>();
}

double size(const torch::Tensor& x) { return x.to(torch::kDouble).norm().item<double>(); }

// The furthest that rounding moves any of the statistics, relative to its size: a single number may by chance not move.
double furthest(const TensorMap& rounded, const TensorMap& fine) {
  double most = 0;
  for (const auto& [name, tensor] : rounded) {
    const double length = size(fine.at(name));
    if (length > 0) most = std::max(most, distance(tensor, fine.at(name)) / length);
  }
  return most;
}

// The part of the elements that differ by more than sums do.
double moved_share(const torch::Tensor& ours, const torch::Tensor& recorded) {
  const double allowed = 2 * kSums * recorded.abs().max().item<double>();
  return (ours - recorded).abs().gt(allowed).to(torch::kDouble).mean().item<double>();
}

// A mean near 0 is a sum that cancels: what its rounding is to be seen beside is the deviation of what was summed.
double summed_size(const TensorMap& statistics, const std::string& name) {
  const std::string kMean = "running_mean";
  if (!name.ends_with(kMean)) return size(statistics.at(name));
  return size(statistics.at(name.substr(0, name.size() - kMean.size()) + "running_var").sqrt());
}

void expect_statistics(const TensorMap& recorded, const TensorMap& ours, const TensorMap& fine,
                       const Closeness& closeness) {
  const double rounding = std::min(furthest(recorded, fine), furthest(ours, fine));
  for (const auto& [name, tensor] : recorded) {
    const bool first = std::any_of(closeness.first_layers.begin(), closeness.first_layers.end(),
                                   [&](const std::string& layer) { return name.starts_with(layer); });
    const double allowed =
        first ? kSums * summed_size(recorded, name) : (kSums + closeness.forward * rounding) * size(tensor);
    EXPECT_LE(distance(ours.at(name), tensor), allowed) << name;
  }
}

}  // namespace

void load(torch::nn::Module& model, const Recording& recorded, const NameOf& name_of) {
  const torch::NoGradGuard no_grad;
  for (auto& tensors : {model.named_parameters(), model.named_buffers()}) {
    for (const auto& item : tensors) {
      const std::string name = name_of(item.key());
      if (!name.empty()) item.value().copy_(recorded[name].view(item.value().sizes()));
    }
  }
}

TensorMap gradients_of(const torch::nn::Module& model, const NameOf& name_of) {
  TensorMap gradients;
  for (const auto& item : model.named_parameters())
    gradients[name_of(item.key())] = item.value().grad().clone();
  return gradients;
}

TensorMap buffers_of(const torch::nn::Module& model, const NameOf& name_of) {
  TensorMap buffers;
  for (const auto& item : model.named_buffers()) {
    const std::string name = name_of(item.key());
    if (!name.empty()) buffers[name] = item.value().clone();
  }
  return buffers;
}

StepResult step_from(const torch::Tensor& scores, const torch::Tensor& classes,
                     const torch::nn::Module& model, const NameOf& name_of) {
  const torch::Tensor loss = torch::cross_entropy_loss(scores, classes);
  loss.backward();
  return {scores.detach(), loss.detach(), gradients_of(model, name_of), buffers_of(model, name_of)};
}

TensorMap recorded_like(const TensorMap& ours, const Recording& recorded) {
  TensorMap tensors;
  for (const auto& [name, tensor] : ours) tensors[name] = recorded[name].view(tensor.sizes());
  return tensors;
}

bool has_recorded_codes(Execution& execution, const Recording& recorded, const NameOf& name_of,
                        const std::function<void()>& step) {
  bool same = true;
  std::size_t seen = 0;
  execution.listener = [&](const LayerEvent& event) {
    const std::string key = "io." + name_of(event.layer) + ".y";
    if (!recorded.has(key)) return;
    ++seen;
    if (!same) return;
    const double moved = moved_share(event.output, recorded[key]);
    same = moved == 0;
    // In the first layer that sees it, another code moves the 3×3 pixels around it, of 64 or more, or one sentence of four: a
    // quarter at most. Three such codes at once are not too many.
    const bool is_local = event.output.dim() == 4 || event.output.size(0) > 2;
    if (is_local) {
      EXPECT_LT(moved, 0.75) << key << " is off as a whole, not by a code on a border";
    }
  };
  step();
  execution.listener = nullptr;
  EXPECT_EQ(seen, recorded.layers().size()) << "layers of " << recorded.name();
  return same;
}

testing::AssertionResult as_rounded(const torch::Tensor& recorded, const torch::Tensor& ours,
                                    const torch::Tensor& fine, double times) {
  if (!ours.defined()) return testing::AssertionFailure() << "no tensor";
  if (ours.sizes() != recorded.sizes()) {
    return testing::AssertionFailure() << "sizes " << ours.sizes() << ", expected " << recorded.sizes();
  }
  const double rounding = std::min(distance(recorded, fine), distance(ours, fine));
  const double off = distance(ours, recorded), allowed = times * rounding + kLayersOfSums * size(recorded);
  if (off <= allowed) return testing::AssertionSuccess();  // false for NaN
  return testing::AssertionFailure() << "differs by " << off << " where rounding moves it by " << rounding
                                     << " and its size is " << size(recorded);
}

void expect_step(const StepResult& recorded, const StepResult& ours, const StepResult& fine,
                 const Closeness& closeness) {
  EXPECT_TRUE(as_rounded(recorded.output, ours.output, fine.output, closeness.forward)) << "output";
  if (recorded.loss.defined()) {
    // A mean of cross-entropies moves by no more than twice what a score moves by.
    const double moved = (ours.output - recorded.output).abs().max().item<double>();
    EXPECT_NEAR(ours.loss.item<double>(), recorded.loss.item<double>(),
                2 * moved + kLayersOfSums * recorded.loss.item<double>());
  }
  EXPECT_FALSE(recorded.gradients.empty());
  for (const auto& [name, gradient] : recorded.gradients) {
    ASSERT_TRUE(ours.gradients.count(name)) << "no gradient of " << name;
    EXPECT_TRUE(as_rounded(gradient, ours.gradients.at(name), fine.gradients.at(name), closeness.gradient))
        << "gradient of " << name;
  }
  expect_statistics(recorded.statistics, ours.statistics, fine.statistics, closeness);
}

}  // namespace lowtide
