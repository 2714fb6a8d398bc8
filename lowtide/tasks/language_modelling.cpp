#include "lowtide/tasks/language_modelling.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "lowtide/data/static_batches.h"
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
  return {.words = words,
          .units = model.hidden,
          .layers = model.layers,
          .dropout = model.dropout,
          .heads = model.heads,
          .feed_forward = model.feed_forward_units()};
}

void replace(const NamedTensors& values, const NamedTensors& by) {
  for (std::size_t i = 0; i < values.size(); ++i) values[i].second.copy_(by[i].second);
}

}  // namespace

Corpus open_corpus(const DataOptions& options) {
  if (options.format != "text") return open_corpus(options.format, options.dir);
  return open_text(options.dir, {options.tokens == "characters", options.min_count});
}

LanguageModelling::LanguageModelling(const Recipe& recipe, std::shared_ptr<Ranks> ranks)
    : batch_(recipe.training.batch),
      length_(recipe.data.length),
      ranks_(std::move(ranks)),
      shards_(ranks_->shards_of(recipe.training.shards)),
      device_(device_of(recipe.running)),
      corpus_(open_corpus(recipe.data)),
      batches_(corpus_.train, batch_, length_),
      execution_(make_execution(recipe.precision, recipe.running, recipe.training.seed)),
      model_(make_language_model(recipe.model.name, options_of(recipe.model, corpus_.vocabulary.size()))) {
  initialise(*model_, recipe.training.seed);
  attach_layers(*model_, execution_, model_->default_rules(), recipe.precision.layer_bits, recipe.model.name);
  model_->to(device_);
  carried_ = model_->initial_state(batch_);
  before_ = model_->initial_state(batch_);
  const auto words = torch::TensorOptions(torch::kInt64).device(device_);
  static_ = {torch::zeros({length_, batch_}, words), torch::zeros({length_ * batch_}, words)};
  layers_ = measure_layers(*model_, *execution_, length_, [&] {
    NamedTensors state = model_->initial_state(1);
    model_->forward(torch::zeros({length_, 1}, torch::TensorOptions(torch::kInt64).device(device_)), state);
  });
}

LanguageModelling::Window LanguageModelling::to_device(const TextWindow& window, std::int64_t batch) const {
  const torch::Tensor words = torch::tensor(window.inputs).view({window.length, batch});
  return {words.to(device_), torch::tensor(window.targets).to(device_)};
}

torch::Tensor LanguageModelling::scores_of(const torch::Tensor& words, NamedTensors& state) {
  if (!stand_in_) return model_->forward(words, state);
  std::vector<torch::Tensor> inputs{words};
  for (const auto& [name, tensor] : state) inputs.push_back(tensor);
  const std::vector<torch::Tensor> outputs = stand_in_(inputs);
  for (std::size_t i = 0; i < state.size(); ++i) state[i].second = outputs[i + 1];
  return outputs[0];
}

torch::Tensor LanguageModelling::loss_of(const Window& window, NamedTensors& state) {
  const torch::Tensor scores = scores_of(window.words, state);
  return torch::cross_entropy_loss(scores.view({-1, scores.size(-1)}), window.targets);
}

// The same in an evaluation.
torch::Tensor LanguageModelling::evaluated_loss(const Window& window, NamedTensors& state) {
  EvaluationGraphs::Tensors inputs{window.words, window.targets};
  for (const auto& [name, tensor] : state) inputs.push_back(tensor);
  const auto outputs = evaluate_batch(inputs, [&](const auto& read) {
    NamedTensors after = state;
    for (std::size_t i = 0; i < after.size(); ++i) after[i].second = read[i + 2];
    EvaluationGraphs::Tensors made{loss_of({read[0], read[1]}, after)};
    for (const auto& [name, tensor] : after) made.push_back(tensor);
    return made;
  });
  for (std::size_t i = 0; i < state.size(); ++i) state[i].second = outputs[i + 1];
  return outputs[0];
}

LanguageModelling::Window LanguageModelling::columns_of(const Window& window, std::int64_t begin,
                                                        std::int64_t end) const {
  if (begin == 0 && end == window.words.size(1)) return window;
  const torch::Tensor targets = window.targets.view_as(window.words);
  return {window.words.narrow(1, begin, end - begin).contiguous(),
          targets.narrow(1, begin, end - begin).reshape({-1})};
}

LanguageModelling::Window LanguageModelling::shard_of(const Window& window) const {
  return columns_of(window, shards_.begin_of(execution_->shard, batch_),
                    shards_.begin_of(execution_->shard + 1, batch_));
}

NamedTensors LanguageModelling::shard_of(const NamedTensors& state) const {
  const std::int64_t begin = shards_.begin_of(execution_->shard, batch_),
                     end = shards_.begin_of(execution_->shard + 1, batch_);
  NamedTensors rows;
  for (const auto& [name, tensor] : state) rows.emplace_back(name, tensor.narrow(0, begin, end - begin));
  return rows;
}

void LanguageModelling::draw_batch() {
  if (execution_->shard != shards_.first) return;  // of the same window
  const TextWindow window = batches_.next();
  if (window.first) replace(carried_, model_->initial_state(batch_));
  replace(before_, carried_);
  window_ = {static_.words.narrow(0, 0, window.length), static_.targets.narrow(0, 0, window.length * batch_)};
  copy_to_static(torch::tensor(window.inputs).view_as(window_.words), window_.words);
  copy_to_static(torch::tensor(window.targets), window_.targets);
}

StepResult LanguageModelling::compute_step() {
  const Window window = shard_of(window_);
  const NamedTensors remembered = shard_of(carried_);
  const MacCounter counter(*execution_, layers_);
  NamedTensors state = remembered;
  const torch::Tensor loss = loss_of(window, state);
  loss.backward();
  replace(remembered, state);
  const double share = static_cast<double>(window.words.size(1)) / static_cast<double>(batch_);
  return {loss.detach(), {}, window.words.numel(), 0, counter.macs(), share};
}

std::optional<double> LanguageModelling::training_metric(double loss, double /*correct*/) const {
  return std::exp(loss);
}

Evaluation LanguageModelling::evaluate(Split split, Bits bits) {
  return evaluate_sample(split, bits, std::numeric_limits<std::int64_t>::max());
}

// The first windows of each column: what follows cannot be read without what came before it. The columns are shared out as
// those of training are.
Evaluation LanguageModelling::evaluate_sample(Split split, Bits bits, std::int64_t items) {
  const auto& text = corpus_.of(split);
  const Evaluating evaluating(*model_, *execution_, bits);
  // A probe's windows are those of training: so many items are one batch.
  const std::int64_t most = execution_->batch_statistics ? batch_ : kEvalColumns;
  const auto columns = std::clamp<std::int64_t>(static_cast<std::int64_t>(text.size() / 2), 1, most);
  std::vector<double> losses;  // of this rank's shards
  std::int64_t words = 0;
  for (std::int64_t shard = shards_.first; shard < shards_.end(); ++shard) {
    const std::int64_t begin = shards_.begin_of(shard, columns), end = shards_.begin_of(shard + 1, columns);
    TextBatches windows(text, columns, length_);
    NamedTensors state = model_->initial_state(end - begin);
    torch::Tensor loss = torch::zeros({}, torch::TensorOptions(torch::kDouble).device(device_));
    words = 0;
    for (std::int64_t i = 0; i < windows.windows_per_epoch() && words < items; ++i) {
      const TextWindow window = windows.next();
      const Window part = columns_of(to_device(window, columns), begin, end);
      if (begin < end) loss += evaluated_loss(part, state) * part.words.numel();
      words += window.length * columns;
    }
    losses.push_back(loss.item<double>());
  }
  double loss = 0;
  for (const torch::Tensor& of_rank : ranks_->gather(torch::tensor(losses, torch::kDouble).to(device_))) {
    for (const torch::Tensor& of_shard : of_rank.cpu().unbind(0)) loss += of_shard.item<double>();
  }
  const double mean = loss / static_cast<double>(words);
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
  NamedTensors state = shard_of(before_);
  return loss_of(shard_of(window_), state);
}

}  // namespace lowtide
