#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <limits>
#include <set>
#include <string_view>

#include "lowtide/base/error.h"
#include "lowtide/base/suggest.h"
#include "lowtide/recipe/keys.h"
#include "lowtide/schedule/layer_rules.h"
#include "lowtide/schedule/schedule.h"

namespace lowtide {
namespace {

void expect(bool condition, std::string_view option, const std::string& value, std::string_view expected) {
  if (!condition) throw UserError(fmt::format("{} is {}; expected {}", option, value, expected));
}

// Each value by itself: what its key accepts, and what no file of a run can hold. JSON has neither infinities nor text that
// is not UTF-8.

void check_value(const RecipeKey&, bool) {}

void check_value(const RecipeKey& key, std::integral auto value) {
  const Accepted& accepted = key.accepted;
  expect(accepted.holds(static_cast<double>(value)), key.name, fmt::to_string(value), accepted.range_text());
}

void check_value(const RecipeKey& key, double value) {
  const std::string text = fmt::to_string(value);
  expect(std::isfinite(value), key.name, text, "a finite number");
  // Steps are computed in floats.
  expect(std::abs(value) <= std::numeric_limits<float>::max(), key.name, text,
         "at most 3.4e38, the largest float");
  expect(key.accepted.holds(value), key.name, text, key.accepted.range_text());
}

void check_value(const RecipeKey& key, const std::string& value) {
  const std::string text = Json(value).dump(-1, ' ', true, Json::error_handler_t::replace);
  expect(Json::parse(text) == value, key.name, text, "text in UTF-8");
  if (key.accepted.has_choices()) expect_choice(key.name, value, key.accepted.kind);
}

template <typename T>
void check_value(const RecipeKey& key, const std::vector<T>& values) {
  for (const T& value : values) check_value(key, value);
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

void check_data(const DataOptions& d) {
  const auto is_one_of = [&](std::initializer_list<std::string_view> formats) {
    return std::find(formats.begin(), formats.end(), d.format) != formats.end();
  };
  task_of(d);
  expect(!d.dir.empty(), "data-dir", "empty", "the folder of the data set (--data-dir FOLDER)");
  check_names("classes", d.classes);
  check_names("columns", d.columns);
  expect(d.columns.empty() || d.columns.size() == 3, "columns", fmt::format("{} names", d.columns.size()),
         "three: of premise, hypothesis and label");
  expect(d.classes.empty() || is_one_of({"voc", "pairs"}), "classes", "given",
         fmt::format("data that takes them, voc or pairs, not {}", d.format));
  expect(!d.skip_damaged || is_one_of({"folder", "tiny-imagenet", "voc"}), "skip-damaged", "true",
         fmt::format("data of single files, folder, tiny-imagenet or voc, not {}", d.format));
  expect(d.test_language.empty() || d.format == "xnli", "test-language", "'" + d.test_language + "'",
         fmt::format("data xnli, not {}", d.format));
}

void check_training(const TrainingOptions& t) {
  expect(t.steps > 0 || t.epochs > 0, "steps", "0 and so is epochs", "one of them above 0");
  expect(t.betas.size() == 2 && t.betas[0] >= 0 && t.betas[0] < 1 && t.betas[1] >= 0 && t.betas[1] < 1,
         "betas", fmt::format("{}", fmt::join(t.betas, " ")), "two numbers from 0 to below 1");
  expect(!t.lr_steps.empty(), "lr-steps", "empty", "one or more (lr-schedule constant has none)");
  expect(t.lr_schedule != "inverse-sqrt" || t.warmup > 0, "warmup", "0",
         "1 or more: inverse-sqrt falls from the end of the warm-up on");
  expect(t.seed <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()), "seed",
         fmt::to_string(t.seed), "at most 2^63 - 1, the largest whole number of a recipe file");
}

void check_shards(const Recipe& recipe) {
  const std::int64_t shards = recipe.training.shards;
  const bool whole_graph = task_of(recipe.data) == TaskKind::kNodes && recipe.data.fan_out.empty();
  expect(shards == 1 || !whole_graph, "shards", fmt::to_string(shards),
         "1: a graph is computed as a whole, by one rank, unless nodes are drawn (--fan-out)");
  expect(whole_graph || recipe.training.batch % shards == 0, "shards", fmt::to_string(shards),
         fmt::format("a divisor of batch, {}", recipe.training.batch));
  expect(recipe.running.ranks == 1 || !whole_graph, "ranks", fmt::to_string(recipe.running.ranks),
         "1: a graph is computed as a whole, by one rank, unless nodes are drawn (--fan-out)");
  expect(shards % recipe.running.ranks == 0, "ranks", fmt::to_string(recipe.running.ranks),
         fmt::format("a divisor of shards, {}", shards));
}

void check_precision(const PrecisionOptions& p) {
  expect(p.eval_bits == -1 || p.eval_bits == 0 || (p.eval_bits >= kFewestBits && p.eval_bits <= kMostBits),
         "eval-bits", fmt::to_string(p.eval_bits), "-1, 0, or 2 to 32");
  const LayerRules rules(p.layer_bits);
  const ScheduleSpec spec = schedule_of(p);
  check(spec);
  expect(!is_fp32(spec.highest()) || p.eval_bits <= 0, "eval-bits", fmt::to_string(p.eval_bits),
         "0 for an fp32 schedule, which measures no ranges to quantise by");
}

}  // namespace

void check_values(const Recipe& recipe) {
  Recipe copy = recipe;
  for (const RecipeKey& key : recipe_keys(copy))
    std::visit([&](const auto* value) { check_value(key, *value); }, key.value);
}

void check(const Recipe& recipe) {
  check_values(recipe);
  check_data(recipe.data);
  expect(recipe.model.norm != "none" || !recipe.model.quantize_norm, "quantize-norm", "true",
         "false: with norm none there is nothing to quantise");
  check_training(recipe.training);
  expect(!chooses_best(recipe.training) || recipe.running.eval_every > 0, "eval-every", "0",
         "1 or more: keep-best and patience choose among the evaluations");
  check_precision(recipe.precision);
  check_shards(recipe);
}

}  // namespace lowtide
