#include "lowtide/tasks/language_modelling.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "lowtide/data/text/plain_text.h"
#include "lowtide/models/initialise.h"
#include "lowtide/tasks/setup.h"

namespace lowtide {
namespace {

// Columns of a text that is evaluated: few, so that little of it is cut off at their ends, and the same for all recipes.
constexpr std::int64_t kEvalColumns = 10;
// As many windows as move a running range by all but 0.9^100 of its way.
constexpr int kReEstimationWindows = 100;

LanguageModelOptions options_of(const ModelOptions& model, std::int64_t words) {
  return {words, model.hidden, model.layers, model.dropout, model.heads, model.feed_forward_units()};
}

void replace(NamedTensors& values, const NamedTensors& by) {
  for (std::size_t i = 0; i < values.size(); ++i) values[i].second.copy_(by[i].second);
}

}  // namespace

Corpus open_corpus(const DataOptions& options) {
  if (options.format != "text") return open_corpus(options.format, options.dir);
  return open_text(options.dir, {options.tokens == "characters", options.min_count});
}

LanguageModelling::LanguageModelling(const Recipe& recipe)
    : batch_(recipe.training.batch),
      length_(recipe.data.length),
      device_(device_of(recipe.running)),
      corpus_(open_corpus(recipe.data)),
      batches_(corpus_.train, batch_, length_),
      execution_(make_execution(recipe)),
      model_(make_language_model(recipe.model.name, options_of(recipe.model, corpus_.vocabulary.size()))) {
  initialise(*model_, recipe.training.seed);
  attach_layers(*model_, execution_, model_->default_rules(), recipe);
  model_->to(device_);
  carried_ = model_->initial_state(batch_);
  layers_ = measure_layers(*model_, *execution_, length_, [&] {
    NamedTensors state = model_->initial_state(1);
    model_->forward(torch::zeros({length_, 1}, torch::TensorOptions(torch::kInt64).device(device_)), state);
  });
}

LanguageModelling::Window LanguageModelling::to_device(const TextWindow& window, std::int64_t batch) const {
  const torch::Tensor words = torch::tensor(window.inputs).view({window.length, batch});
  return {words.to(device_), torch::tensor(window.targets).to(device_)};
}

torch::Tensor LanguageModelling::loss_of(const Window& window, NamedTensors& state) {
  const torch::Tensor scores = model_->forward(window.words, state);
  return torch::cross_entropy_loss(scores.view({-1, scores.size(-1)}), window.targets);
}

StepResult LanguageModelling::train_step() {
  const TextWindow window = batches_.next();
  if (window.first) replace(carried_, model_->initial_state(batch_));
  last_ = to_device(window, batch_);
  before_last_.clear();
  for (const auto& [name, tensor] : carried_) before_last_.emplace_back(name, tensor.clone());
  const MacCounter counter(*execution_, layers_);
  NamedTensors state = carried_;
  const torch::Tensor loss = loss_of(last_, state);
  loss.backward();
  replace(carried_, state);
  return {loss.detach(), {}, window.length * batch_, 0, counter.macs()};
}

std::optional<double> LanguageModelling::training_metric(double loss, double /*correct*/) const {
  return std::exp(loss);
}

Evaluation LanguageModelling::evaluate(Split split, Bits bits) {
  return evaluate_sample(split, bits, std::numeric_limits<std::int64_t>::max());
}

// The first windows of each column: what follows cannot be read without what came before it.
Evaluation LanguageModelling::evaluate_sample(Split split, Bits bits, std::int64_t items) {
  const auto& text = corpus_.of(split);
  const Evaluating evaluating(*model_, *execution_, bits);
  const auto columns = std::clamp<std::int64_t>(static_cast<std::int64_t>(text.size() / 2), 1, kEvalColumns);
  TextBatches windows(text, columns, length_);
  NamedTensors state = model_->initial_state(columns);
  torch::Tensor loss = torch::zeros({}, torch::TensorOptions(torch::kDouble).device(device_));
  std::int64_t words = 0;
  for (std::int64_t i = 0; i < windows.windows_per_epoch() && words < items; ++i) {
    const TextWindow window = windows.next();
    const std::int64_t here = window.length * columns;
    loss += loss_of(to_device(window, columns), state) * here;
    words += here;
  }
  const double mean = loss.item<double>() / static_cast<double>(words);
  Evaluation evaluation{std::exp(mean), mean, words};
  if (corpus_.kind == "characters") evaluation.also["bits_per_character"] = mean / std::numbers::ln2;
  return evaluation;
}

void LanguageModelling::re_estimate_statistics() {
  const torch::NoGradGuard no_grad;
  TextBatches windows(corpus_.train, batch_, length_);
  NamedTensors state = model_->initial_state(batch_);
  for (std::int64_t i = 0; i < std::min<std::int64_t>(kReEstimationWindows, windows.windows_per_epoch());
       ++i) {
    model_->forward(to_device(windows.next(), batch_).words, state);
  }
}

torch::Tensor LanguageModelling::repeat_loss() {
  NamedTensors state = before_last_;
  return loss_of(last_, state);
}

}  // namespace lowtide
