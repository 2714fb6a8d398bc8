#include "lowtide/tasks/entailment.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "lowtide/base/error.h"
#include "lowtide/data/static_batches.h"
#include "lowtide/models/bert_weights.h"
#include "lowtide/models/initialise.h"
#include "lowtide/tasks/setup.h"
#include "lowtide/tasks/shared_evaluation.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

bool has_weights_folder(const ModelOptions& model) {
  return !model.weights.empty() && fs::is_directory(model.weights);
}

// A folder of published weights says what its network is; else the recipe does.
BertConfig config_of(const DataOptions& data, const ModelOptions& model) {
  if (model.name != "bert") {
    throw UserError(fmt::format("model is '{}'; expected bert for pairs of sentences", model.name));
  }
  if (has_weights_folder(model)) return open_bert_config(fs::path(model.weights) / "config.json");
  BertConfig config;
  config.hidden = model.hidden;
  config.layers = model.layers;
  config.heads = model.heads;
  config.feed_forward = model.feed_forward_units();
  config.positions = data.length;
  config.dropout = config.attention_dropout = model.dropout;
  check(config, "the recipe's bert");
  return config;
}

WordPiece pieces_of(const DataOptions& data, const ModelOptions& model) {
  if (!data.vocabulary.empty()) return open_wordpiece(data.vocabulary, data.lower_case);
  const fs::path vocabulary = fs::path(model.weights) / "vocab.txt";
  if (has_weights_folder(model) && fs::exists(vocabulary)) return open_wordpiece(vocabulary, data.lower_case);
  throw UserError("vocabulary is empty; expected a WordPiece file (--vocabulary vocab.txt)");
}

// The words that the vocabulary has, unless published weights say how many their network has.
BertConfig with_words(BertConfig config, const DataOptions& data, const ModelOptions& model,
                      const WordPiece& pieces) {
  const std::int64_t words = pieces.vocabulary().size();
  if (!has_weights_folder(model)) {
    config.vocabulary = words;
    config.padding = pieces.padding();
  }
  if (words > config.vocabulary) {
    throw UserError(fmt::format(
        "the vocabulary has {} pieces, {} has {} words; expected the vocabulary that belongs to it", words,
        model.weights, config.vocabulary));
  }
  if (data.length > config.positions) {
    throw UserError(fmt::format("length is {}; this bert has {} positions", data.length, config.positions));
  }
  return config;
}

const std::string& language_of(const DataOptions& options, Split split) {
  return split == Split::kTrain || options.test_language.empty() ? options.language : options.test_language;
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

EntailmentData open_pairs(const DataOptions& options, Split split) {
  if (options.format == "pairs")
    return open_labelled_pairs(options.dir, split, {options.columns, options.classes});
  return open_entailment(options.format, options.dir, split, language_of(options, split));
}

bool has_pairs(const DataOptions& options, Split split) {
  return has_entailment(options.format, options.dir, split, language_of(options, split));
}

Entailment::Entailment(const Recipe& recipe, std::shared_ptr<Ranks> ranks)
    : data_(recipe.data),
      batch_(recipe.training.batch),
      seed_(recipe.training.seed),
      ranks_(std::move(ranks)),
      shards_(ranks_->shards_of(recipe.training.shards)),
      device_(device_of(recipe.running)),
      config_(config_of(recipe.data, recipe.model)),
      pieces_(pieces_of(recipe.data, recipe.model)),
      execution_(make_execution(recipe.precision, recipe.running, recipe.training.seed)) {
  config_ = with_words(config_, recipe.data, recipe.model, pieces_);
  const std::int64_t labels = read_data();
  sampler_ = std::make_unique<LengthSampler>(make_sampler());
  make_model(recipe.model, recipe.precision.layer_bits, labels);
}

std::int64_t Entailment::read_data() {
  const EntailmentData train = open_pairs(data_, Split::kTrain);
  expect_labels(train, train);
  if (data_.format == "pairs") data_.classes = train.classes;
  description_ = train.describe();
  const HeldOut split = hold_out(static_cast<std::int64_t>(train.pairs.size()), data_.validation);
  train_ = encode(selected(train.pairs, split.train));
  if (data_.validation > 0) {
    valid_ = encode(selected(train.pairs, split.valid));
    description_ += fmt::format(", {} of them held out", data_.validation);
  }
  read_test(train);
  if (cut_ > 0) description_ += fmt::format("; {} pairs cut to {} pieces", cut_, data_.length);
  return static_cast<std::int64_t>(train.classes.size());
}

// Where the test set is not there or has no labels, as in GLUE, what would choose (dev) is what is tested, and only pairs
// held out of the training set can choose. Of a user's own pairs the other may be missing.
void Entailment::read_test(const EntailmentData& train) {
  EntailmentData dev, test;
  const bool dev_may_be_missing = data_.format == "pairs" && has_pairs(data_, Split::kTest);
  if (!dev_may_be_missing || has_pairs(data_, Split::kValid)) {
    dev = open_pairs(data_, Split::kValid);
    expect_labels(dev, train);
  }
  if (has_pairs(data_, Split::kTest)) test = open_pairs(data_, Split::kTest);
  if (!test.classes.empty() || dev.pairs.empty()) {
    expect_labels(test, train);
    test_ = encode(test.pairs);
    if (data_.validation == 0) valid_ = encode(dev.pairs);
    description_ += fmt::format("; tested on {}", test.place);
  } else {
    test_ = encode(dev.pairs);
    description_ += fmt::format("; there are no labels to test by, so {} is the test set", dev.place);
    if (data_.validation == 0) description_ += " and nothing is held out (--validation)";
  }
}

Entailment::Encoded Entailment::encode(const std::vector<SentencePair>& pairs) {
  Encoded encoded;
  for (const SentencePair& pair : pairs) {
    std::vector<std::int32_t> premise = pieces_.encode(pair.premise),
                              hypothesis = pieces_.encode(pair.hypothesis);
    const auto whole = static_cast<std::int64_t>(premise.size() + hypothesis.size()) + kSpecialPieces;
    cut_ += whole > data_.length ? 1 : 0;
    encoded.pairs.push_back(encode_pair(pieces_, std::move(premise), std::move(hypothesis), data_.length));
    encoded.labels.push_back(pair.label);
  }
  return encoded;
}

void Entailment::make_model(const ModelOptions& options, const std::vector<std::string>& layer_bits,
                            std::int64_t labels) {
  model_ = std::make_shared<BertClassifier>(config_, labels);
  initialise(*model_, seed_);
  if (!options.weights.empty()) {
    const fs::path weights = options.weights;
    load_bert_weights(*model_, has_weights_folder(options) ? weights / "model.safetensors" : weights);
  }
  attach_layers(*model_, execution_, {}, layer_bits, options.name);
  model_->to(device_);
  layers_ = measure_layers(*model_, *execution_, 1, [&] {
    const torch::Tensor one =
        torch::ones({1, data_.length}, torch::TensorOptions(torch::kInt64).device(device_));
    model_->forward({one, torch::zeros_like(one), one});
  });
}

std::vector<std::int32_t> Entailment::Encoded::lengths() const {
  std::vector<std::int32_t> lengths;
  for (const EncodedPair& pair : pairs) lengths.push_back(static_cast<std::int32_t>(pair.ids.size()));
  return lengths;
}

Entailment::Batch Entailment::host_batch(const Encoded& data, const std::vector<std::int64_t>& items) const {
  std::vector<const EncodedPair*> pairs;
  std::vector<std::int64_t> labels;
  for (const std::int64_t item : items) {
    pairs.push_back(&data.pairs[static_cast<std::size_t>(item)]);
    labels.push_back(data.labels[static_cast<std::size_t>(item)]);
  }
  const PairBatch padded = pad_pairs(pieces_, pairs);
  const auto matrix = [&](const std::vector<std::int64_t>& values) {
    return torch::tensor(values).view({padded.batch, padded.length});
  };
  return {{matrix(padded.ids), matrix(padded.types), matrix(padded.mask)}, torch::tensor(labels)};
}

Entailment::Batch Entailment::to_device(const Batch& batch) const {
  const BertInput& input = batch.input;
  return {{input.words.to(device_), input.types.to(device_), input.present.to(device_)},
          batch.labels.to(device_)};
}

torch::Tensor Entailment::scores_of(const BertInput& input) {
  return stand_in_ ? stand_in_({input.words, input.types, input.present})[0] : model_->forward(input);
}

// Pairs, and their length.
std::int64_t Entailment::batch_shape() const {
  return last_.input.words.size(0) * (data_.length + 1) + last_.input.words.size(1);
}

void Entailment::draw_batch() {
  if (execution_->shard != shards_.first) return;  // of the same pairs
  drawn_ = sampler_->next();
  if (shards_.total > 1) return;
  last_ = host_batch(train_, drawn_);
  Batch& kept = static_[batch_shape()];
  if (kept.labels.defined()) {
    copy_to_static(last_.input.words, kept.input.words);
    copy_to_static(last_.input.types, kept.input.types);
    copy_to_static(last_.input.present, kept.input.present);
    copy_to_static(last_.labels, kept.labels);
  } else {
    kept = to_device(last_);
  }
  last_ = kept;
}

// One batch of an epoch may have fewer pairs than there are shards; repeat_loss() has something to repeat nevertheless.
StepResult Entailment::compute_step() {
  const auto pairs = static_cast<std::int64_t>(drawn_.size());
  const std::int64_t begin = shards_.begin_of(execution_->shard, pairs),
                     end = shards_.begin_of(execution_->shard + 1, pairs);
  if (begin == end) {
    last_ = to_device(host_batch(train_, drawn_));
    return {.share = 0};
  }
  if (shards_.total > 1)
    last_ = to_device(host_batch(train_, {drawn_.begin() + begin, drawn_.begin() + end}));
  const MacCounter counter(*execution_, layers_);
  const torch::Tensor scores = model_->forward(last_.input);
  const torch::Tensor loss = torch::cross_entropy_loss(scores, last_.labels);
  loss.backward();
  const torch::Tensor correct = scores.detach().argmax(1).eq(last_.labels).sum();
  return {loss.detach(), correct,        end - begin,
          end - begin,   counter.macs(), static_cast<double>(end - begin) / static_cast<double>(pairs)};
}

Evaluation Entailment::evaluate(Split split, Bits bits) {
  return evaluate_sample(split, bits, std::numeric_limits<std::int64_t>::max());
}

Evaluation Entailment::evaluate_sample(Split split, Bits bits, std::int64_t pairs) {
  const Encoded& data = split == Split::kTest ? test_ : split == Split::kValid ? valid_ : train_;
  const Evaluating evaluating(*model_, *execution_, bits);
  // In order of length, so that little of a batch is padding.
  std::vector<std::int64_t> order(data.pairs.size());
  std::iota(order.begin(), order.end(), 0);
  order = sample_of(order, pairs);
  const std::vector<std::int32_t> lengths = data.lengths();
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return lengths[static_cast<std::size_t>(a)] < lengths[static_cast<std::size_t>(b)];
  });
  order = items_of_rank(order, batch_, *ranks_);
  EvaluationSums sums;
  const auto items = static_cast<std::int64_t>(order.size());
  for (std::int64_t first = 0; first < items; first += batch_) {
    const std::int64_t last = std::min(items, first + batch_);
    const Batch batch = to_device(host_batch(data, {order.begin() + first, order.begin() + last}));
    const BertInput& pairs_read = batch.input;
    const auto of_batch = evaluate_batch(
        {pairs_read.words, pairs_read.types, pairs_read.present, batch.labels}, [&](const auto& inputs) {
          const torch::Tensor scores = scores_of({inputs[0], inputs[1], inputs[2]});
          return EvaluationGraphs::Tensors{torch::cross_entropy_loss(scores, inputs[3]) * (last - first),
                                           scores.argmax(1).eq(inputs[3]).sum()};
        });
    sums.add(of_batch[0], of_batch[1], last - first);
  }
  const EvaluationSums::Totals all = sums.over_all(*ranks_);
  const auto count = static_cast<double>(all.items);
  return {static_cast<double>(all.correct) / count, all.loss / count, all.items};
}

void Entailment::re_estimate_statistics() {
  const torch::NoGradGuard no_grad;
  LengthSampler sampler = make_sampler();
  for (std::int64_t i = 0; i < std::min(kReEstimationBatches, sampler.batches_per_epoch()); ++i) {
    model_->forward(to_device(host_batch(train_, sampler.next())).input);
  }
}

torch::Tensor Entailment::repeat_loss() {
  return torch::cross_entropy_loss(model_->forward(last_.input), last_.labels);
}

}  // namespace lowtide
