#include "lowtide/train/recipe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <type_traits>

#include "lowtide/base/error.h"
#include "lowtide/base/suggest.h"
#include "lowtide/schedule/cycles.h"
#include "lowtide/schedule/layer_rules.h"
#include "lowtide/schedule/schedule.h"
#include "lowtide/train/data_formats.h"
#include "lowtide/train/recipe_file.h"

namespace lowtide {
namespace {

constexpr std::string_view kRunningGroup = "Running (does not change what is computed)";

// Keys that the first version of the run folder had not. A run without them is as their defaults say.
constexpr std::array<std::string_view, 32> kAddedLater{
    "max-size",    "train-set",  "test-set",      "length",        "vocabulary",   "lower-case",
    "language",    "undirected", "node-features", "node-split",    "fan-out",      "hidden",
    "layers",      "heads",      "feed-forward",  "dropout",       "aggregation",  "quantize-norm",
    "freeze-norm", "weights",    "plateau-every", "classes",       "skip-damaged", "tokens",
    "min-count",   "columns",    "test-language", "input-dropout", "norm",         "decay-layers",
    "keep-best",   "patience"};

constexpr std::string_view kAugmentations = "none|pad-crop|random-resized-crop";
constexpr std::string_view kNodeFeatures = "as-is|standardise|normalise";
constexpr std::string_view kTokens = "words|characters";
constexpr std::string_view kNorms = "tensor|none";
constexpr std::string_view kAggregations = "fp32|quantized";
constexpr std::string_view kRoundings = "stochastic|nearest";
constexpr std::string_view kOptimizers = "sgd|adam|adamw";
constexpr std::string_view kRateSchedules = "steps|cosine|linear|inverse-sqrt|plateau|constant";
constexpr std::string_view kDevices = "cpu|cuda";

// The one definition of every option: visit.group(name), then visit(key, member, help) for each; where text is not just any
// text, a fourth says its kind, as help shows it: FILE, FOLDER, MODEL, or the choices there are.
template <typename AnyRecipe, typename Visitor>
void visit_data(AnyRecipe& r, Visitor& visit) {
  visit.group("Data");
  visit("data", r.data,
        "format, which says the task too: idx, cifar10, cifar100, folder, tiny-imagenet (images); ptb, "
        "wikitext, text (language); ogb, npz, musae, citation (nodes of a graph); voc (detection); xnli, "
        "mnli, rte, sick, pairs (entailment)",
        "FORMAT");
  visit("data-dir", r.data_dir, "folder of the data set; of text also one file", "FOLDER");
  visit("validation", r.validation, "training items held out to choose by; 0 trains on all of them");
  visit("augment", r.augment, "what is done to training images", kAugmentations);
  visit("padding", r.padding, "of pad-crop, pixels on each side");
  visit("flip", r.flip, "mirror half of the training images");
  visit("image-size", r.image_size, "height and width the network sees; 0: as in the files");
  visit("resize", r.resize, "evaluation: shorter side before the centre crop; 0: none");
  visit("max-size", r.max_size, "detection: the longer side at most, the shorter being --resize");
  visit("train-set", r.train_set, "detection: images to train on, or the first so many of them: train:16");
  visit("test-set", r.test_set, "detection: images to test on, likewise");
  visit("classes", r.classes,
        "detection, pairs: names of the classes, in this order; none: those of the training set");
  visit("skip-damaged", r.skip_damaged,
        "folder, tiny-imagenet, voc: leave out images that cannot be read, and say how many");
  visit("mean", r.mean, "per channel, subtracted from pixels in 0..1");
  visit("std", r.std, "per channel, divided by");
  visit("length", r.length, "language: words that a step goes back; entailment: pieces of a pair at most");
  visit("tokens", r.tokens, "text: what a token is", kTokens);
  visit("min-count", r.min_count, "text: what occurs less often in training is <unk>");
  visit("columns", r.columns,
        "pairs: premise, hypothesis and label, by their names in the header or numbers from 1; none: by the "
        "usual names");
  visit("vocabulary", r.vocabulary, "entailment: the WordPiece file, vocab.txt", "FILE");
  visit("lower-case", r.lower_case, "entailment: the vocabulary is uncased");
  visit("language", r.language, "entailment: of xnli");
  visit("test-language", r.test_language,
        "entailment: of what xnli is chosen by and tested on; empty: --language");
  visit("undirected", r.undirected, "nodes: every edge leads both ways");
  visit("node-features", r.node_features,
        "nodes: as-is, standardise (each column) or normalise (each row's sum)", kNodeFeatures);
  visit("node-split", r.node_split,
        "nodes: data (the files' own), or drawn: 0.6:0.2 (shares to train and to validate), 20:30 (nodes a "
        "class)");
  visit("fan-out", r.fan_out, "nodes: neighbours drawn in each layer; none: the whole graph in every step");
}

template <typename AnyRecipe, typename Visitor>
void visit_model_and_precision(AnyRecipe& r, Visitor& visit) {
  visit.group("Model and precision");
  visit("model", r.model, "a name from `lowtide models`", "MODEL");
  visit("hidden", r.hidden, "units of a layer (lstm, transformer, bert, gcn, sage, gat)");
  visit("layers", r.layers, "layers of those");
  visit("heads", r.heads, "of attention (transformer, bert, gat)");
  visit("feed-forward", r.feed_forward,
        "units between the two products of a transformer's layer; 0: four times --hidden");
  visit("dropout", r.dropout, "share of activations set to zero in training");
  visit("input-dropout", r.input_dropout, "graphs: the same of the nodes' features");
  visit("norm", r.norm, "graphs, between layers: tensor (all nodes and features together) or none", kNorms);
  visit("aggregation", r.aggregation, "graphs: fp32 (FP-Agg) or quantized (Q-Agg)", kAggregations);
  visit("quantize-norm", r.quantize_norm, "graphs: quantise what the normalisation reads as well");
  visit("freeze-norm", r.freeze_norm,
        "detection: batch normalisation keeps the statistics and factors it begins with");
  visit("weights", r.weights,
        "weights to begin with: a safetensors file; for bert also a folder with config.json and "
        "model.safetensors",
        "FILE");
  visit("schedule", r.schedule,
        "a name (CR, RR, static, fp32 ...) or a whole line (`lowtide schedule --help`)", "SCHEDULE");
  visit("bits", r.bits, "forward bits, lowest:highest");
  visit("grad-bits", r.grad_bits, "gradient bits, or a range that moves with the forward bits");
  visit("cycles", r.cycles, "cycles of the schedule");
  visit("k", r.k, "rate of exponential profiles");
  visit("c", r.c, "bend of REX profiles");
  visit("eval-bits", r.eval_bits, "bits of evaluation; 0: fp32; -1: the schedule's highest");
  visit("layer-bits", r.layer_bits, "bits of single layers by name pattern: conv1=8 '*.shortcut=fp32'");
  visit("grad-rounding", r.grad_rounding, "how gradients are rounded", kRoundings);
  visit("bifurcate", r.bifurcate, "keep the weight gradient's error unquantised");
  visit("recompute", r.recompute, "save memory: compute what batch norm needs again in the backward pass");
  visit("engine", r.engine,
        "how quantised products are computed: simulated, integer (CPU), or auto: the fastest", "ENGINE");
}

template <typename AnyRecipe, typename Visitor>
void visit_training(AnyRecipe& r, Visitor& visit) {
  visit.group("Training");
  visit("steps", r.steps, "training steps; 0: by --epochs");
  visit("epochs", r.epochs, "passes over the training items, where --steps is 0");
  visit("batch", r.batch, "items a step");
  visit("optimizer", r.optimizer, "adamw: weight decay apart from the gradient", kOptimizers);
  visit("lr", r.lr, "learning rate");
  visit("momentum", r.momentum, "of sgd");
  visit("weight-decay", r.weight_decay, "added to the gradient, times the weight");
  visit("decay-layers", r.decay_layers,
        "layers, or parameters, that decay, by name pattern: layer0 '*.weight'; none: all");
  visit("betas", r.betas, "of adam");
  visit("clip", r.clip, "largest norm of the gradient; 0: any");
  visit("lr-schedule", r.lr_schedule, "how the learning rate changes", kRateSchedules);
  visit("lr-steps", r.lr_steps,
        "of `steps`: where the rate falls; fractions of the run, or steps if above 1");
  visit("lr-gamma", r.lr_gamma, "of `steps` and `plateau`: what it is multiplied by");
  visit("plateau-every", r.plateau_every,
        "of `plateau`: steps between two looks at the held-out loss, after which the rate falls unless that "
        "is the lowest "
        "yet; 0: an epoch");
  visit("lr-final", r.lr_final, "of cosine and linear: the last rate, as a fraction of the first");
  visit("lr-delay", r.lr_delay, "steps at the full rate before the lr-schedule begins; it spans the rest");
  visit("warmup", r.warmup, "steps in which the rate rises from 0");
  visit("swa-start", r.swa_start, "average the weights from this fraction of the run on; 1: never");
  visit("swa-every", r.swa_every, "steps between two weights that are averaged");
  visit("keep-best", r.keep_best,
        "keep the weights of the best evaluation of the held-out items too: checkpoints/best.safetensors");
  visit("patience", r.patience,
        "stop after so many evaluations in a row without a better one, and keep the best; 0: never");
  visit("seed", r.seed, "of weights, order, augmentation and rounding");
}

template <typename AnyRecipe, typename Visitor>
void visit_running(AnyRecipe& r, Visitor& visit) {
  visit.group(kRunningGroup);
  visit("device", r.device, "where it is computed", kDevices);
  visit("threads", r.threads, "0: all cores that the process may use");
  visit("loader-threads", r.loader_threads, "threads that read and augment ahead; 0: as needed");
  visit("log-every", r.log_every, "steps between two lines of metrics.jsonl");
  visit("eval-every", r.eval_every, "steps between two evaluations; 0: only at the end");
  visit("checkpoint-every", r.checkpoint_every, "steps between two checkpoints; 0: only at the end");
  visit("keep-checkpoints", r.keep_checkpoints, "how many of the last to keep");
}

template <typename AnyRecipe, typename Visitor>
void visit_essence(AnyRecipe& r, Visitor& visit) {
  visit_data(r, visit);
  visit_model_and_precision(r, visit);
  visit_training(r, visit);
}

template <typename AnyRecipe, typename Visitor>
void visit_recipe(AnyRecipe& r, Visitor& visit) {
  visit_essence(r, visit);
  visit_running(r, visit);
}

// CLI11 reads -1 as a large unsigned number, and one that is too large as the largest there is.
template <typename T>
std::string whole_number_error(const std::string& text) {
  T value{};
  const char* first = text.data() + (text.starts_with('+') ? 1 : 0);
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(first, last, value);
  if (error == std::errc() && end == last && first != last) return "";
  return fmt::format("{} is not a whole number from {} to {}", text, std::numeric_limits<T>::min(),
                     std::numeric_limits<T>::max());
}

struct DefineOptions {
  CLI::App& app;

  void group(std::string_view name) { app.option_defaults()->group(std::string(name)); }

  template <typename T>
  void operator()(const std::string& key, T& member, const std::string& help, std::string_view kind = "") {
    if constexpr (std::is_same_v<T, bool>) {
      app.add_flag("--" + key + ",!--no-" + key, member, help);
    } else {
      CLI::Option* option = app.add_option("--" + key, member, help)->capture_default_str();
      if constexpr (std::is_integral_v<T>) option->check(whole_number_error<T>);
      if (!kind.empty()) option->type_name(std::string(kind));
    }
  }
};

struct WriteJson {
  Json json = Json::object();

  void group(std::string_view) {}

  template <typename T>
  void operator()(const std::string& key, const T& member, std::string_view, std::string_view = "") {
    json[key] = member;
  }
};

struct ReadJson {
  const Json& json;
  const std::string& where;
  bool optional = false;

  void group(std::string_view name) { optional = name == kRunningGroup; }

  template <typename T>
  void operator()(const std::string& key, T& member, std::string_view, std::string_view = "") {
    const auto found = json.find(key);
    const bool later = std::find(kAddedLater.begin(), kAddedLater.end(), key) != kAddedLater.end();
    if (found == json.end() && (optional || later)) return;
    if (found == json.end()) throw UserError(fmt::format("{}: the recipe has no key '{}'", where, key));
    try {
      member = found->template get<T>();
    } catch (const Json::exception&) {
      throw UserError(
          fmt::format("{}: the recipe's '{}' is {}, of the wrong type", where, key, found->dump()));
    }
  }
};

struct WriteToml {
  std::string text;

  void group(std::string_view name) { text += fmt::format("{}# {}\n", text.empty() ? "" : "\n", name); }

  // JSON's numbers, strings and arrays are TOML's too. The parser takes no empty array: it is the default
  // everywhere.
  template <typename T>
  void operator()(const std::string& key, const T& member, std::string_view, std::string_view = "") {
    const Json json = member;
    if (!json.is_array() || !json.empty())
      text += fmt::format("{} = {}\n", key, json.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
};

void expect(bool condition, std::string_view option, const std::string& value, std::string_view expected) {
  if (!condition) throw UserError(fmt::format("{} is {}; expected {}", option, value, expected));
}

// What no file of a run can hold: JSON has neither infinities nor text that is not UTF-8.
void check_writable(const std::string& key, const Json& value) {
  if (value.is_array()) {
    for (const Json& element : value) check_writable(key, element);
  } else if (value.is_number_float()) {
    const auto number = value.get<double>();
    expect(std::isfinite(number), key, fmt::to_string(number), "a finite number");
    // Steps are computed in floats.
    expect(std::abs(number) <= std::numeric_limits<float>::max(), key, fmt::to_string(number),
           "at most 3.4e38, the largest float");
  } else if (value.is_string()) {
    const std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
    expect(Json::parse(text) == value, key, text, "text in UTF-8");
  }
}

void expect_between(std::int64_t value, std::string_view option, std::int64_t low, std::int64_t high) {
  expect(value >= low && value <= high, option, fmt::to_string(value), fmt::format("{} to {}", low, high));
}

// Far beyond what any machine holds, and far from where sizes computed from them overflow.
constexpr std::int64_t kMostBatch = std::int64_t{1} << 24, kMostUnits = std::int64_t{1} << 20;
constexpr int kMostLayers = 1024, kMostLength = 65536, kMostPixels = 65535, kMostThreads = 1024;

void check_training(const Recipe& r) {
  expect_between(r.steps, "steps", 0, kMostSteps);
  expect(std::isfinite(r.epochs) && r.epochs >= 0, "epochs", fmt::to_string(r.epochs), "0 or more");
  expect(r.steps > 0 || r.epochs > 0, "steps", "0 and so is epochs", "one of them above 0");
  expect_between(r.batch, "batch", 1, kMostBatch);
  expect(std::isfinite(r.lr) && r.lr > 0, "lr", fmt::to_string(r.lr), "a number above 0");
  expect(r.momentum >= 0 && r.momentum < 1, "momentum", fmt::to_string(r.momentum), "0 or more, below 1");
  expect(r.weight_decay >= 0, "weight-decay", fmt::to_string(r.weight_decay), "0 or more");
  expect(r.betas.size() == 2 && r.betas[0] >= 0 && r.betas[0] < 1 && r.betas[1] >= 0 && r.betas[1] < 1,
         "betas", fmt::format("{}", fmt::join(r.betas, " ")), "two numbers from 0 to below 1");
  expect(r.clip >= 0, "clip", fmt::to_string(r.clip), "0 or more");
  expect(r.lr_delay >= 0, "lr-delay", fmt::to_string(r.lr_delay), "0 or more");
  expect(r.warmup >= 0, "warmup", fmt::to_string(r.warmup), "0 or more");
  expect(r.lr_gamma > 0, "lr-gamma", fmt::to_string(r.lr_gamma), "above 0");
  expect(r.lr_final >= 0 && r.lr_final <= 1, "lr-final", fmt::to_string(r.lr_final), "0 to 1");
  expect(!r.lr_steps.empty(), "lr-steps", "empty", "one or more (lr-schedule constant has none)");
  for (const double at : r.lr_steps)
    expect(at > 0 && at <= kMostSteps, "lr-steps", fmt::to_string(at),
           fmt::format("fractions or steps above 0, at most {}", kMostSteps));
  expect(r.swa_start >= 0 && r.swa_start <= 1, "swa-start", fmt::to_string(r.swa_start), "0 to 1");
  expect(r.swa_every > 0, "swa-every", fmt::to_string(r.swa_every), "1 or more");
  expect(r.seed <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()), "seed",
         fmt::to_string(r.seed), "at most 2^63 - 1, the largest whole number of a recipe file");
  expect(r.patience >= 0, "patience", fmt::to_string(r.patience), "0 or more");
  expect(!chooses_best(r) || r.eval_every > 0, "eval-every", "0",
         "1 or more: keep-best and patience choose among the evaluations");
  expect(r.plateau_every >= 0, "plateau-every", fmt::to_string(r.plateau_every), "0 or more");
  expect(r.lr_schedule != "inverse-sqrt" || r.warmup > 0, "warmup", "0",
         "1 or more: inverse-sqrt falls from the end of the warm-up on");
  expect_choice("optimizer", r.optimizer, kOptimizers);
  expect_choice("lr-schedule", r.lr_schedule, kRateSchedules);
}

void check_model(const Recipe& r) {
  expect_between(r.max_size, "max-size", 0, kMostPixels);
  expect_between(r.length, "length", 1, kMostLength);
  expect_between(r.hidden, "hidden", 1, kMostUnits);
  expect_between(r.layers, "layers", 1, kMostLayers);
  expect_between(r.heads, "heads", 1, kMostUnits);
  expect_between(r.feed_forward, "feed-forward", 0, kMostUnits);
  expect(r.dropout >= 0 && r.dropout < 1, "dropout", fmt::to_string(r.dropout), "0 or more, below 1");
  expect(r.input_dropout >= 0 && r.input_dropout < 1, "input-dropout", fmt::to_string(r.input_dropout),
         "0 or more, below 1");
  expect_choice("norm", r.norm, kNorms);
  expect(r.norm != "none" || !r.quantize_norm, "quantize-norm", "true",
         "false: with norm none there is nothing to quantise");
  for (const int drawn : r.fan_out) expect(drawn > 0, "fan-out", fmt::to_string(drawn), "1 or more each");
  expect_choice("aggregation", r.aggregation, kAggregations);
  expect_choice("node-features", r.node_features, kNodeFeatures);
}

// A list's words are given one by one; the parser of arguments takes some of them for lists.
void check_names(std::string_view key, const std::vector<std::string>& names) {
  std::set<std::string_view> seen;
  for (const std::string& name : names) {
    const bool list = name == "%%" || (name.starts_with('[') && name.ends_with(']'));
    const bool controls = std::any_of(
        name.begin(), name.end(), [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; });
    expect(!name.empty() && !list && !controls, key, Json(name).dump(), "names, each in one line, not in []");
    expect(seen.insert(name).second, key, "'" + name + "' twice", "each name once");
  }
}

void check_data(const Recipe& r) {
  const auto is_one_of = [&](std::initializer_list<std::string_view> formats) {
    return std::find(formats.begin(), formats.end(), r.data) != formats.end();
  };
  expect(r.min_count > 0, "min-count", fmt::to_string(r.min_count), "1 or more");
  expect_choice("tokens", r.tokens, kTokens);
  check_names("classes", r.classes);
  check_names("columns", r.columns);
  expect(r.columns.empty() || r.columns.size() == 3, "columns", fmt::format("{} names", r.columns.size()),
         "three: of premise, hypothesis and label");
  expect(r.classes.empty() || is_one_of({"voc", "pairs"}), "classes", "given",
         fmt::format("data that takes them, voc or pairs, not {}", r.data));
  expect(!r.skip_damaged || is_one_of({"folder", "tiny-imagenet", "voc"}), "skip-damaged", "true",
         fmt::format("data of single files, folder, tiny-imagenet or voc, not {}", r.data));
  expect(r.test_language.empty() || r.data == "xnli", "test-language", "'" + r.test_language + "'",
         fmt::format("data xnli, not {}", r.data));
}

// What each format of data is for.
const std::map<std::string, TaskKind>& task_kinds() {
  static const std::map<std::string, TaskKind> kinds{{"idx", TaskKind::kImages},
                                                     {"cifar10", TaskKind::kImages},
                                                     {"cifar100", TaskKind::kImages},
                                                     {"folder", TaskKind::kImages},
                                                     {"tiny-imagenet", TaskKind::kImages},
                                                     {"ptb", TaskKind::kLanguage},
                                                     {"wikitext", TaskKind::kLanguage},
                                                     {"text", TaskKind::kLanguage},
                                                     {"ogb", TaskKind::kNodes},
                                                     {"npz", TaskKind::kNodes},
                                                     {"musae", TaskKind::kNodes},
                                                     {"citation", TaskKind::kNodes},
                                                     {"voc", TaskKind::kDetection},
                                                     {"xnli", TaskKind::kEntailment},
                                                     {"mnli", TaskKind::kEntailment},
                                                     {"rte", TaskKind::kEntailment},
                                                     {"sick", TaskKind::kEntailment},
                                                     {"pairs", TaskKind::kEntailment}};
  return kinds;
}

}  // namespace

TaskKind task_of(const Recipe& recipe) {
  const auto& kinds = task_kinds();
  if (const auto found = kinds.find(recipe.data); found != kinds.end()) return found->second;
  const std::vector<std::string_view> formats = data_formats();
  throw UserError(fmt::format("data is '{}'{}; expected one of {}", recipe.data,
                              did_you_mean(recipe.data, formats), fmt::join(formats, ", ")));
}

std::vector<std::string_view> data_formats() {
  std::vector<std::string_view> names;
  for (const auto& [name, kind] : task_kinds()) names.push_back(name);
  return names;
}

bool chooses_best(const Recipe& recipe) { return recipe.keep_best || recipe.patience > 0; }

void define_recipe(CLI::App& app, Recipe& recipe) {
  app.config_formatter(std::make_shared<RecipeFile>(app));
  DefineOptions define{app};
  visit_recipe(recipe, define);
  app.option_defaults()->group("Options");
}

void check(const Recipe& r) {
  const Json json = to_json(r);
  for (const auto& [key, value] : json.items()) check_writable(key, value);
  task_of(r);
  expect_choice("augment", r.augment, kAugmentations);
  expect_choice("grad-rounding", r.grad_rounding, kRoundings);
  expect_choice("device", r.device, kDevices);
  expect(!r.data_dir.empty(), "data-dir", "empty", "the folder of the data set (--data-dir FOLDER)");
  expect(r.validation >= 0, "validation", fmt::to_string(r.validation), "0 or more");
  expect_between(r.padding, "padding", 0, kMostPixels);
  expect_between(r.image_size, "image-size", 0, kMostPixels);
  expect_between(r.resize, "resize", 0, kMostPixels);
  expect(r.eval_bits == -1 || r.eval_bits == 0 || (r.eval_bits >= kFewestBits && r.eval_bits <= kMostBits),
         "eval-bits", fmt::to_string(r.eval_bits), "-1, 0, or 2 to 32");
  expect_between(r.threads, "threads", 0, kMostThreads);
  expect_between(r.loader_threads, "loader-threads", 0, kMostThreads);
  expect(r.log_every > 0, "log-every", fmt::to_string(r.log_every), "1 or more");
  expect(r.eval_every >= 0, "eval-every", fmt::to_string(r.eval_every), "0 or more");
  expect(r.checkpoint_every >= 0, "checkpoint-every", fmt::to_string(r.checkpoint_every), "0 or more");
  expect(r.keep_checkpoints > 0, "keep-checkpoints", fmt::to_string(r.keep_checkpoints), "1 or more");
  check_data(r);
  check_training(r);
  check_model(r);
  const LayerRules rules(r.layer_bits);
  const ScheduleSpec spec = schedule_of(r);
  check(spec);
  expect(!is_fp32(spec.highest()) || r.eval_bits <= 0, "eval-bits", fmt::to_string(r.eval_bits),
         "0 for an fp32 schedule, which measures no ranges to quantise by");
}

ScheduleSpec schedule_of(const Recipe& r) {
  if (r.schedule.find(' ') != std::string::npos) return parse_schedule(r.schedule);
  ScheduleSpec named = parse_schedule(r.schedule);
  if (named.name == "fp32") return named;
  if (named.name == "static") {
    const auto highest = r.bits.find(':') == std::string::npos ? r.bits : r.bits.substr(r.bits.find(':') + 1);
    return parse_schedule(fmt::format("static {} grad={}", highest, r.grad_bits));
  }
  const CyclicSchedule* cyclic = find_cyclic(named.name);
  if (cyclic == nullptr) {
    throw UserError(fmt::format(
        "schedule '{}' needs its whole line, such as --schedule \"deficit 3:8 grad=8 steps=1000\"",
        r.schedule));
  }
  std::string line = fmt::format("{} {} n={} grad={}", named.name, r.bits, r.cycles, r.grad_bits);
  if (cyclic->profile == Profile::kExponential) line += fmt::format(" k={}", r.k);
  if (cyclic->profile == Profile::kRex) line += fmt::format(" c={}", r.c);
  return parse_schedule(line);
}

Json to_json(const Recipe& recipe) {
  WriteJson write;
  visit_recipe(recipe, write);
  return write.json;
}

Json essence(const Recipe& recipe) {
  WriteJson write;
  visit_essence(recipe, write);
  if (chooses_best(recipe))
    write.json["eval-every"] = recipe.eval_every;  // among other evaluations is another best
  return write.json;
}

Recipe recipe_from_json(const Json& json, const std::string& where) {
  if (!json.is_object()) throw UserError(where + ": the recipe is not a JSON object");
  Recipe recipe;
  ReadJson read{json, where};
  visit_recipe(recipe, read);
  const Json known = to_json(recipe);
  for (const auto& [key, value] : json.items()) {
    if (!known.contains(key))
      throw UserError(fmt::format("{}: the recipe has an unknown key '{}'", where, key));
  }
  return recipe;
}

std::string to_toml(const Recipe& recipe) {
  WriteToml write;
  visit_recipe(recipe, write);
  return write.text;
}

std::vector<std::string> differences(const Recipe& a, const Recipe& b) {
  const Json left = essence(a), right = essence(b);
  std::vector<std::string> keys;
  for (const auto& [key, value] : left.items()) {
    if (right.contains(key) && value != right.at(key)) keys.push_back(key);
  }
  return keys;
}

}  // namespace lowtide
