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

LanguageModelOptions options_of(const Recipe& recipe, std::int64_t words) {
  const std::int64_t feed_forward = recipe.feed_forward > 0 ? recipe.feed_forward : 4 * recipe.hidden;
  return {words, recipe.hidden, recipe.layers, recipe.dropout, recipe.heads, feed_forward};
}

void replace(NamedTensors& values, const NamedTensors& by) {
  for (std::size_t i = 0; i < values.size(); ++i) values[i].second.copy_(by[i].second);
}

}  // namespace

Corpus open_corpus(const Recipe& recipe) {
  if (recipe.data != "text") return open_corpus(recipe.data, recipe.data_dir);
  return open_text(recipe.data_dir, {recipe.tokens == "characters", recipe.min_count});
}

LanguageModelling::LanguageModelling(const Recipe& recipe)
    : recipe_(recipe),
      device_(device_of(recipe)),
      corpus_(open_corpus(recipe)),
      batches_(corpus_.train, recipe.batch, recipe.length),
      execution_(make_execution(recipe)),
      model_(make_language_model(recipe.model, options_of(recipe, corpus_.vocabulary.size()))) {
  initialise(*model_, recipe.seed);
  attach_layers(*model_, execution_, model_->default_rules(), recipe);
  model_->to(device_);
  carried_ = model_->initial_state(recipe.batch);
  layers_ = measure_layers(*model_, *execution_, recipe.length, [&] {
    NamedTensors state = model_->initial_state(1);
    model_->forward(torch::zeros({recipe.length, 1}, torch::TensorOptions(torch::kInt64).device(device_)),
                    state);
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
  if (window.first) replace(carried_, model_->initial_state(recipe_.batch));
  last_ = to_device(window, recipe_.batch);
  before_last_.clear();
  for (const auto& [name, tensor] : carried_) before_last_.emplace_back(name, tensor.clone());
  const MacCounter counter(*execution_, layers_);
  NamedTensors state = carried_;
  const torch::Tensor loss = loss_of(last_, state);
  loss.backward();
  replace(carried_, state);
  return {loss.detach(), {}, window.length * recipe_.batch, 0, counter.macs()};
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
  TextBatches windows(text, columns, recipe_.length);
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
  TextBatches windows(corpus_.train, recipe_.batch, recipe_.length);
  NamedTensors state = model_->initial_state(recipe_.batch);
  for (std::int64_t i = 0; i < std::min<std::int64_t>(kReEstimationWindows, windows.windows_per_epoch());
       ++i) {
    model_->forward(to_device(windows.next(), recipe_.batch).words, state);
  }
}

std::string LanguageModelling::find_not_finite() {
  return lowtide::find_not_finite(*model_, *execution_, [&] {
    NamedTensors state = before_last_;
    return loss_of(last_, state);
  });
}

}  // namespace lowtide
