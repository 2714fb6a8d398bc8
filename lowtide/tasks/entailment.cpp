#include "lowtide/tasks/entailment.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "lowtide/base/error.h"
#include "lowtide/models/bert_weights.h"
#include "lowtide/models/initialise.h"
#include "lowtide/tasks/setup.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

// As many batches as move a running range by all but 0.9^100 of its way.
constexpr std::int64_t kReEstimationBatches = 100;

bool is_folder(const Recipe& recipe) { return !recipe.weights.empty() && fs::is_directory(recipe.weights); }

// A folder of published weights says what its network is; else the recipe does.
BertConfig config_of(const Recipe& recipe) {
  if (recipe.model != "bert") {
    throw UserError(fmt::format("model is '{}'; expected bert for pairs of sentences", recipe.model));
  }
  if (is_folder(recipe)) return open_bert_config(fs::path(recipe.weights) / "config.json");
  BertConfig config;
  config.hidden = recipe.hidden;
  config.layers = recipe.layers;
  config.heads = recipe.heads;
  config.feed_forward = recipe.feed_forward > 0 ? recipe.feed_forward : 4 * recipe.hidden;
  config.positions = recipe.length;
  config.dropout = config.attention_dropout = recipe.dropout;
  check(config, "the recipe's bert");
  return config;
}

WordPiece pieces_of(const Recipe& recipe) {
  if (!recipe.vocabulary.empty()) return open_wordpiece(recipe.vocabulary, recipe.lower_case);
  const fs::path beside = fs::path(recipe.weights) / "vocab.txt";
  if (is_folder(recipe) && fs::exists(beside)) return open_wordpiece(beside, recipe.lower_case);
  throw UserError("vocabulary is empty; expected a WordPiece file (--vocabulary vocab.txt)");
}

// The words that the vocabulary has, unless published weights say how many their network has.
BertConfig with_words(BertConfig config, const Recipe& recipe, const WordPiece& pieces) {
  const std::int64_t words = pieces.vocabulary().size();
  if (!is_folder(recipe)) {
    config.vocabulary = words;
    config.padding = pieces.padding();
  }
  if (words > config.vocabulary) {
    throw UserError(fmt::format(
        "the vocabulary has {} pieces, {} has {} words; expected the vocabulary that belongs to it", words,
        recipe.weights, config.vocabulary));
  }
  if (recipe.length > config.positions) {
    throw UserError(fmt::format("length is {}; this bert has {} positions", recipe.length, config.positions));
  }
  return config;
}

const std::string& language_of(const Recipe& recipe, Split split) {
  return split == Split::kTrain || recipe.test_language.empty() ? recipe.language : recipe.test_language;
}

void expect_labels(const EntailmentData& data, const EntailmentData& train) {
  if (data.classes.empty())
    throw UserError(fmt::format("{}: no labels; expected some to train and test by", data.place));
  if (data.classes != train.classes) {
    throw UserError(fmt::format("{}: {} classes, but {} has {}; expected the same", data.place,
                                data.classes.size(), train.place, train.classes.size()));
  }
}

std::vector<SentencePair> selected(const std::vector<SentencePair>& pairs,
                                   const std::vector<std::int64_t>& items) {
  std::vector<SentencePair> chosen;
  chosen.reserve(items.size());
  for (const std::int64_t item : items) chosen.push_back(pairs[static_cast<std::size_t>(item)]);
  return chosen;
}

}  // namespace

EntailmentData open_pairs(const Recipe& recipe, Split split) {
  if (recipe.data == "pairs")
    return open_labelled_pairs(recipe.data_dir, split, {recipe.columns, recipe.classes});
  return open_entailment(recipe.data, recipe.data_dir, split, language_of(recipe, split));
}

bool has_pairs(const Recipe& recipe, Split split) {
  return has_entailment(recipe.data, recipe.data_dir, split, language_of(recipe, split));
}

Entailment::Entailment(const Recipe& recipe)
    : recipe_(recipe),
      device_(device_of(recipe)),
      config_(config_of(recipe)),
      pieces_(pieces_of(recipe)),
      execution_(make_execution(recipe)) {
  config_ = with_words(config_, recipe, pieces_);
  read_data();
}

void Entailment::read_data() {
  const EntailmentData train = open_pairs(recipe_, Split::kTrain);
  expect_labels(train, train);
  if (recipe_.data == "pairs") recipe_.classes = train.classes;
  description_ = train.describe();
  const HeldOut split = hold_out(static_cast<std::int64_t>(train.pairs.size()), recipe_.validation);
  train_ = encode(selected(train.pairs, split.train));
  if (recipe_.validation > 0) {
    valid_ = encode(selected(train.pairs, split.valid));
    description_ += fmt::format(", {} of them held out", recipe_.validation);
  }
  read_test(train);
  if (cut_ > 0) description_ += fmt::format("; {} pairs cut to {} pieces", cut_, recipe_.length);
  sampler_ = std::make_unique<LengthSampler>(make_sampler());
  make_model(static_cast<std::int64_t>(train.classes.size()));
}

// Where the test set is not there or has no labels, as in GLUE, what would choose (dev) is what is tested, and only pairs
// held out of the training set can choose. Of a user's own pairs the other may be missing.
void Entailment::read_test(const EntailmentData& train) {
  EntailmentData dev, test;
  const bool dev_may_be_missing = recipe_.data == "pairs" && has_pairs(recipe_, Split::kTest);
  if (!dev_may_be_missing || has_pairs(recipe_, Split::kValid)) {
    dev = open_pairs(recipe_, Split::kValid);
    expect_labels(dev, train);
  }
  if (has_pairs(recipe_, Split::kTest)) test = open_pairs(recipe_, Split::kTest);
  if (!test.classes.empty() || dev.pairs.empty()) {
    expect_labels(test, train);
    test_ = encode(test.pairs);
    if (recipe_.validation == 0) valid_ = encode(dev.pairs);
    description_ += fmt::format("; tested on {}", test.place);
  } else {
    test_ = encode(dev.pairs);
    description_ += fmt::format("; there are no labels to test by, so {} is the test set", dev.place);
    if (recipe_.validation == 0) description_ += " and nothing is held out (--validation)";
  }
}

Entailment::Encoded Entailment::encode(const std::vector<SentencePair>& pairs) {
  constexpr std::int64_t kSpecial = 3;  // [CLS], [SEP], [SEP]
  Encoded encoded;
  for (const SentencePair& pair : pairs) {
    std::vector<std::int32_t> premise = pieces_.encode(pair.premise),
                              hypothesis = pieces_.encode(pair.hypothesis);
    const auto whole = static_cast<std::int64_t>(premise.size() + hypothesis.size()) + kSpecial;
    cut_ += whole > recipe_.length ? 1 : 0;
    encoded.pairs.push_back(encode_pair(pieces_, std::move(premise), std::move(hypothesis), recipe_.length));
    encoded.labels.push_back(pair.label);
  }
  return encoded;
}

void Entailment::make_model(std::int64_t labels) {
  model_ = std::make_shared<BertClassifier>(config_, labels);
  initialise(*model_, recipe_.seed);
  if (!recipe_.weights.empty()) {
    const fs::path weights = recipe_.weights;
    load_bert_weights(*model_, is_folder(recipe_) ? weights / "model.safetensors" : weights);
  }
  attach_layers(*model_, execution_, {}, recipe_);
  model_->to(device_);
  layers_ = measure_layers(*model_, *execution_, 1, [&] {
    const torch::Tensor one =
        torch::ones({1, recipe_.length}, torch::TensorOptions(torch::kInt64).device(device_));
    model_->forward({one, torch::zeros_like(one), one});
  });
}

std::vector<std::int32_t> Entailment::Encoded::lengths() const {
  std::vector<std::int32_t> lengths;
  for (const EncodedPair& pair : pairs) lengths.push_back(static_cast<std::int32_t>(pair.ids.size()));
  return lengths;
}

Entailment::Batch Entailment::batch_of(const Encoded& data, const std::vector<std::int64_t>& items) const {
  std::vector<const EncodedPair*> pairs;
  std::vector<std::int64_t> labels;
  for (const std::int64_t item : items) {
    pairs.push_back(&data.pairs[static_cast<std::size_t>(item)]);
    labels.push_back(data.labels[static_cast<std::size_t>(item)]);
  }
  const PairBatch padded = pad_pairs(pieces_, pairs);
  const auto to_device = [&](const std::vector<std::int64_t>& values) {
    return torch::tensor(values).view({padded.batch, padded.length}).to(device_);
  };
  return {{to_device(padded.ids), to_device(padded.types), to_device(padded.mask)},
          torch::tensor(labels).to(device_)};
}

StepResult Entailment::train_step() {
  last_ = batch_of(train_, sampler_->next());
  const MacCounter counter(*execution_, layers_);
  const torch::Tensor scores = model_->forward(last_.input);
  const torch::Tensor loss = torch::cross_entropy_loss(scores, last_.labels);
  loss.backward();
  const torch::Tensor correct = scores.detach().argmax(1).eq(last_.labels).sum();
  return {loss.detach(), correct, last_.labels.size(0), last_.labels.size(0), counter.macs()};
}

Evaluation Entailment::evaluate(Split split, Bits bits) {
  const Encoded& data = split == Split::kTest ? test_ : split == Split::kValid ? valid_ : train_;
  const Evaluating evaluating(*model_, *execution_, bits);
  // In order of length, so that little of a batch is padding.
  std::vector<std::int64_t> order(data.pairs.size());
  std::iota(order.begin(), order.end(), 0);
  const std::vector<std::int32_t> lengths = data.lengths();
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return lengths[static_cast<std::size_t>(a)] < lengths[static_cast<std::size_t>(b)];
  });
  torch::Tensor loss = torch::zeros({}, torch::TensorOptions(torch::kDouble).device(device_));
  torch::Tensor correct = torch::zeros({}, torch::TensorOptions(torch::kInt64).device(device_));
  const auto items = static_cast<std::int64_t>(order.size());
  for (std::int64_t first = 0; first < items; first += recipe_.batch) {
    const std::int64_t last = std::min(items, first + recipe_.batch);
    const Batch batch = batch_of(data, {order.begin() + first, order.begin() + last});
    const torch::Tensor scores = model_->forward(batch.input);
    loss += torch::cross_entropy_loss(scores, batch.labels) * (last - first);
    correct += scores.argmax(1).eq(batch.labels).sum();
  }
  const auto count = static_cast<double>(items);
  return {correct.item<double>() / count, loss.item<double>() / count, items};
}

void Entailment::re_estimate_statistics() {
  const torch::NoGradGuard no_grad;
  LengthSampler sampler = make_sampler();
  for (std::int64_t i = 0; i < std::min(kReEstimationBatches, sampler.batches_per_epoch()); ++i) {
    model_->forward(batch_of(train_, sampler.next()).input);
  }
}

std::string Entailment::find_not_finite() {
  return lowtide::find_not_finite(*model_, *execution_, [&] {
    return torch::cross_entropy_loss(model_->forward(last_.input), last_.labels);
  });
}

}  // namespace lowtide
