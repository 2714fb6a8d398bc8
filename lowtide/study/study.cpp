#include "lowtide/study/study.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <sstream>

#include "lowtide/base/error.h"
#include "lowtide/schedule/cycles.h"
#include "lowtide/schedule/schedule.h"
#include "lowtide/schedule/text.h"
#include "lowtide/study/equal_cost.h"
#include "lowtide/study/range_test.h"
#include "lowtide/study/script.h"
#include "lowtide/train/learning_rate.h"

namespace lowtide {
namespace {

constexpr std::int64_t kMostSeeds = 10'000;
constexpr std::array kUsualBudgets{0.40, 0.63, 0.82};

void expect(bool condition, const std::string& otherwise) {
  if (!condition) throw UserError(otherwise);
}

// "RR,CR" are two; the commas of a whole line (progressive 3,4,6,8) are its own.
std::vector<std::string> single_schedules(const std::vector<std::string>& given) {
  std::vector<std::string> result;
  for (const std::string& text : given) {
    if (is_line(text)) {
      result.push_back(to_string(parse_schedule(text)));
      continue;
    }
    for (const std::string_view name : split(text, ',')) {
      if (!equal_ignoring_case(name, "all")) {
        result.push_back(parse_schedule(name).name);
        continue;
      }
      for (const CyclicSchedule& cyclic : cyclic_schedules()) result.emplace_back(cyclic.name);
      result.insert(result.end(), {"static", "fp32"});
    }
  }
  return result;
}

// A schedule's line as part of a folder's name.
std::string folder_name(const std::string& setting) {
  std::string result;
  for (const char c : setting) {
    const bool plain =
        (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '.' || c == '=';
    result += plain ? std::string(1, c) : c == '%' ? "pct" : "-";
  }
  return result;
}

std::string highest(const std::string& range) {
  const auto colon = range.find(':');
  return colon == std::string::npos ? range : range.substr(colon + 1);
}

Recipe with_schedule(Recipe recipe, const std::string& schedule) {
  recipe.precision.schedule = schedule;
  // Gradient bits that are a range move with the forward bits; static has none that move.
  if (schedule == "static")
    recipe.precision.schedule =
        fmt::format("static {} grad={}", highest(recipe.precision.bits), highest(recipe.precision.grad_bits));
  if (schedule == "fp32") recipe.precision.eval_bits = -1;  // it measures no ranges to quantise by
  return recipe;
}

// `deficit` steps at the lowest bits, then the whole normal training, with its learning rate.
Recipe with_deficit(Recipe recipe, std::int64_t deficit) {
  const auto normal = static_cast<double>(recipe.training.steps);
  recipe.precision.schedule =
      fmt::format("deficit {} grad={} steps={}", recipe.precision.bits, recipe.precision.grad_bits, deficit);
  recipe.training.steps += deficit;
  recipe.training.lr_delay += deficit;
  if (recipe.training.swa_start < 1) {
    recipe.training.swa_start = (static_cast<double>(deficit) + recipe.training.swa_start * normal) /
                                static_cast<double>(recipe.training.steps);
  }
  return recipe;
}

Recipe with_window(Recipe recipe, std::int64_t from, std::int64_t to) {
  recipe.precision.schedule = fmt::format("window {} grad={} from={} to={}", recipe.precision.bits,
                                          recipe.precision.grad_bits, from, to);
  return recipe;
}

struct BudgetWay {
  double budget = 0;
  std::string way, setting;
};

std::vector<BudgetWay> budget_ways(const Study& study, const Recipe& recipe) {
  std::vector<BudgetWay> result;
  for (const double budget : study.budgets) {
    for (const std::string& schedule : study.schedules) {
      for (const std::string& way : ways_of(schedule, recipe, budget)) {
        const auto loop = loop_copied_by(way);
        if (loop && way == replayed_loop(*loop) && study.seeds == 1) continue;  // it takes another
        result.push_back({.budget = budget, .way = way, .setting = fmt::format("{} {}", way, budget)});
      }
    }
  }
  return result;
}

bool is_impossible(const Study& study, const std::string& setting) {
  return std::any_of(study.impossible.begin(), study.impossible.end(),
                     [&](const ImpossibleSetting& one) { return one.setting == setting; });
}

// Every way to spend each budget that can; last what they are shares of.
std::vector<Member> budget_settings(const Study& study, const Recipe& recipe) {
  std::vector<Member> result;
  for (const BudgetWay& one : budget_ways(study, recipe)) {
    if (is_impossible(study, one.setting)) continue;
    result.push_back({.name = "",
                      .setting = one.setting,
                      .at = std::nullopt,
                      .recipe = spend_budget(recipe, one.way, one.budget),
                      .budget = one.budget,
                      .way = one.way});
  }
  result.push_back({"", "static", std::nullopt, with_schedule(recipe, "static")});
  return result;
}

void expect_schedule(const Recipe& recipe, const std::vector<LayerSize>& layers = {}) {
  const TrainingOptions& training = recipe.training;
  make_schedule(schedule_of(recipe.precision), training.steps, rates_of(training, training.steps), layers);
}

void expect_possible(const Recipe& recipe) {
  expect_schedule(recipe);
  expect(recipe.data.fan_out.empty() || !schedule_of(recipe.precision).probes(),
         "price asks for the loss of fixed items, and with fan-out only a whole graph's is known");
  const bool has_one_rate = recipe.training.lr_schedule == "constant" && recipe.training.warmup == 0;
  expect(!has_one_rate || schedule_of(recipe.precision).name != "matched",
         "matched follows the learning rate, and at a constant one it is constant bits");
}

// A range of bits, or a learning rate that is not known beforehand, may leave a way nothing to spend a budget on.
void note_impossible(Study& study) {
  study.impossible.clear();
  for (const BudgetWay& one : budget_ways(study, study.recipe)) {
    try {
      expect_possible(spend_budget(study.recipe, one.way, one.budget));
    } catch (const UserError& error) {
      if (!is_impossible(study, one.setting)) study.impossible.push_back({one.setting, error.what()});
    }
  }
  const std::vector<BudgetWay> ways = budget_ways(study, study.recipe);
  const bool static_alone = std::all_of(
      ways.begin(), ways.end(), [&](const BudgetWay& one) { return is_impossible(study, one.setting); });
  if (static_alone && !study.impossible.empty()) throw UserError(study.impossible[0].reason);
}

bool chooses_for_layers(const std::string& schedule) { return loop_of(schedule) == ways::kWaterfill; }

// Why a schedule could not be in a network of these layers; empty where it could.
std::string why_not(const Study& study, const std::string& schedule, const std::vector<LayerSize>& layers) {
  for (const double budget : study.budgets) {
    if (is_impossible(study, fmt::format("{} {}", schedule, budget))) continue;
    try {
      expect_schedule(spend_budget(study.recipe, schedule, budget), layers);
    } catch (const UserError& error) {
      return error.what();
    }
  }
  return "";
}

// The members of one seed.
std::vector<Member> settings(const Study& study, const Recipe& recipe) {
  if (study.kind == Study::kBudget) return budget_settings(study, recipe);
  std::vector<Member> result;
  for (const std::string& schedule : study.schedules)
    result.push_back({"", schedule, std::nullopt, with_schedule(recipe, schedule)});
  for (const std::int64_t deficit : study.deficits) {
    result.push_back({"", fmt::format("deficit {}", deficit), deficit, with_deficit(recipe, deficit)});
  }
  if (!study.starts.empty()) result.push_back({"", "no window", std::nullopt, with_window(recipe, 0, 0)});
  for (const std::int64_t start : study.starts) {
    result.push_back(
        {"", fmt::format("window {}", start), start, with_window(recipe, start, start + study.window)});
  }
  return result;
}

void sort_unique(std::vector<std::int64_t>& steps) {
  std::sort(steps.begin(), steps.end());
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
}

void check_steps(const char* key, const std::vector<std::int64_t>& steps) {
  for (const std::int64_t step : steps) {
    expect(step >= 0 && step <= kMostSteps,
           fmt::format("{} has {}; expected steps from 0 to {}", key, step, kMostSteps));
  }
}

void complete_critical(Study& study) {
  check_steps("deficits", study.deficits);
  check_steps("starts", study.starts);
  check_steps("window", {study.window});
  expect(study.deficits.empty() != study.starts.empty() && study.starts.empty() == (study.window == 0),
         "a critical-period study has --deficits, or a --window with --starts; expected one of the two");
  expect(study.recipe.precision.bits.find(':') != std::string::npos,
         fmt::format("bits is {}; a deficit needs two numbers, lowest:highest", study.recipe.precision.bits));
  if (!study.deficits.empty()) study.deficits.push_back(0);
  sort_unique(study.deficits);
  sort_unique(study.starts);
}

void complete_budget(Study& study) {
  if (study.budgets.empty()) study.budgets.assign(kUsualBudgets.begin(), kUsualBudgets.end());
  for (const double budget : study.budgets) {
    expect(budget > 0 && budget < 1,
           fmt::format("budgets has {}; expected shares of what static at the highest bits costs, between 0 "
                       "and 1; static itself is always added",
                       budget));
  }
  std::sort(study.budgets.begin(), study.budgets.end());
  study.budgets.erase(std::unique(study.budgets.begin(), study.budgets.end()), study.budgets.end());
  expect(study.recipe.precision.bits.find(':') != std::string::npos,
         fmt::format("bits is {}; a budget needs two numbers to be spent between, lowest:highest",
                     study.recipe.precision.bits));
  if (study.schedules.empty()) study.schedules = {"all"};
  const bool of_script = !study.command.empty();
  study.schedules = budget_schedules(study.schedules, of_script);
  for (const std::string& schedule : study.schedules) {
    if (const auto loop = loop_of(schedule); loop && of_script)
      throw UserError(
          fmt::format("{} runs in `lowtide train` alone, not in a script; leave it out of schedules", *loop));
  }
}

void check_range_test(Study& study) {
  expect(study.schedules.empty() && study.budgets.empty() && study.deficits.empty() && study.starts.empty(),
         "a range test has its own schedules; leave schedules, budgets, deficits and starts out");
  study.seeds = 1;
  check(study.recipe);
  range_members(study.recipe, range_options(study));
}

// What the studies of trainings have in common.
void check_training(const Study& study) {
  const Recipe& recipe = study.recipe;
  expect(
      !is_line(recipe.precision.schedule),
      fmt::format(
          "the recipe's schedule is a whole line, {}; a study puts its own schedules in its place, made of "
          "the recipe's bits, grad-bits and cycles: give it one with a name",
          lowtide::quoted(recipe.precision.schedule)));
  expect(recipe.training.steps > 0 && recipe.training.steps <= kMostSteps,
         fmt::format("steps is {}; a study needs its length in steps, from 1 to {}", recipe.training.steps,
                     kMostSteps));
  expect(study.seeds >= 1 && study.seeds <= kMostSeeds,
         fmt::format("seeds is {}; expected 1 to {}", study.seeds, kMostSeeds));
  expect(recipe.training.seed <=
             static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max() - kMostSeeds),
         fmt::format("seed is {}; expected room for those that follow it, below 2^63", recipe.training.seed));
  expect(recipe.training.lr_delay <= kMostSteps,
         fmt::format("lr-delay is {}; expected less than steps", recipe.training.lr_delay));
}

// Those of one seed: the others differ in nothing that is checked.
void check_members(const Study& study) {
  std::set<std::string> names;
  for (const Member& member : settings(study, study.recipe)) {
    expect(
        names.insert(folder_name(member.setting)).second,
        fmt::format("schedule '{}' is in the study twice", member.way.empty() ? member.setting : member.way));
    if (study.command.empty()) check(member.recipe);  // a script has options of its own
    expect_schedule(member.recipe);
  }
}

// Of a member with the bits of a loop's runs: those of its own seed, or of the one before; the first of the study has the
// second's. So a study that grows changes none of its members.
std::optional<BitsOf> bits_of(const Study& study, const Member& member) {
  const std::optional<std::string> loop = loop_copied_by(member.way);
  if (!loop) return std::nullopt;
  const bool is_shuffled = member.way == shuffled_loop(*loop);
  const std::uint64_t seed = member.recipe.training.seed,
                      other = seed == study.recipe.training.seed ? seed + 1 : seed - 1;
  const std::string source = folder_name(fmt::format("{} {}", *loop, *member.budget));
  return BitsOf{fmt::format("{}-seed{}", source, is_shuffled ? seed : other), is_shuffled};
}

// The study's own part of its file.
Json varied(const Study& study) {
  Json json{{"kind", study.kind}};
  if (study.kind == Study::kRangeTest) {
    json.update({{"test-steps", study.test_steps}, {"window", study.window}, {"threshold", study.threshold}});
    return json;
  }
  if (!study.schedules.empty()) json["schedules"] = study.schedules;
  if (!study.budgets.empty()) json["budgets"] = study.budgets;
  if (!study.deficits.empty()) json["deficits"] = study.deficits;
  if (!study.starts.empty()) {
    json["window"] = study.window;
    json["starts"] = study.starts;
  }
  json["seeds"] = study.seeds;
  if (!study.command.empty()) json["command"] = study.command;
  return json;
}

}  // namespace

void define_study(CLI::App& app, Study& study) {
  app.option_defaults()->group("Study");
  app.add_option("--kind", study.kind, "")->group("");  // in files alone
  const auto is_of = [&](const char* kind) { return study.kind.empty() || study.kind == kind; };
  if (is_of(Study::kSuite)) {
    app.add_option("--schedules", study.schedules,
                   "all (the ten, static, fp32), or names: CR,RR,static; or whole lines");
  }
  if (is_of(Study::kBudget)) {
    app.add_option("--budgets", study.budgets,
                   "shares of what static at the highest bits costs (default: 0.4,0.63,0.82)")
        ->delimiter(',');
    if (!study.kind.empty()) {  // else the key is there already
      app.add_option("--schedules", study.schedules,
                     "all (the ten, matched, price, waterfill, constant, shorter, phases), or names: "
                     "CR,constant; or whole lines");
    }
  }
  if (is_of(Study::kCritical)) {
    app.add_option("--deficits", study.deficits,
                   "steps at the lowest bits, each before a normal training: 0,500,1000")
        ->delimiter(',');
    app.add_option("--window", study.window, "or steps at the lowest bits within the normal training ...");
    app.add_option("--starts", study.starts, "... from each of these steps on: 0,500,1000")->delimiter(',');
  }
  if (is_of(Study::kRangeTest)) {
    app.add_option("--test-steps", study.test_steps, "steps at each number of bits")->capture_default_str();
    // In a file that may be of any kind the key is there already.
    if (!study.kind.empty())
      app.add_option("--window", study.window, "steps that are averaged")->capture_default_str();
    app.add_option("--threshold", study.threshold,
                   "what counts as moving: of accuracy, or a relative fall of a loss or perplexity")
        ->capture_default_str();
  }
  if (study.kind != Study::kRangeTest) {
    app.add_option("--seeds", study.seeds, "how many: the recipe's seed and those that follow it")
        ->capture_default_str();
    app.add_option("--command", study.command,
                   "train by this instead, a script that writes a run folder: with {schedule}, {seed}, "
                   "{out}, {steps}")
        ->type_name("COMMAND");
  }
  define_recipe(app, study.recipe);
}

void complete(Study& study) {
  if (study.kind == Study::kRangeTest) return check_range_test(study);
  expect(
      study.kind == Study::kSuite || study.kind == Study::kBudget || study.kind == Study::kCritical,
      fmt::format("kind is {}; expected suite, budget, critical or range-test", lowtide::quoted(study.kind)));
  expect(study.test_steps == 0 && study.threshold == 0,
         "test-steps and threshold are a range test's; leave them out");
  check_training(study);
  expect(study.kind == Study::kBudget || study.budgets.empty(),
         "budgets are a study's of kind budget; leave them out");
  if (study.kind == Study::kCritical) {
    expect(study.schedules.empty(), "a critical-period study has its own schedules; leave `schedules` out");
    complete_critical(study);
  } else {
    expect(study.deficits.empty() && study.starts.empty() && study.window == 0,
           fmt::format("a study of kind {} has no deficits, window or starts; that is kind critical",
                       study.kind));
  }
  if (study.kind == Study::kBudget) complete_budget(study);
  if (study.kind == Study::kSuite) {
    if (study.schedules.empty()) study.schedules = {"all"};
    study.schedules = single_schedules(study.schedules);
  }
  if (!study.command.empty()) check_command(study.command);
  if (study.kind == Study::kBudget) note_impossible(study);
  check_members(study);
}

bool has_bits_for_layers(const Study& study) {
  return study.kind == Study::kBudget && study.command.empty() &&
         std::any_of(study.schedules.begin(), study.schedules.end(), chooses_for_layers);
}

std::vector<ImpossibleSetting> fit_to_layers(Study& study, const std::vector<LayerSize>& layers) {
  std::vector<ImpossibleSetting> left_out;
  for (const std::string& schedule : study.schedules) {
    if (!chooses_for_layers(schedule)) continue;
    if (const std::string reason = why_not(study, schedule, layers); !reason.empty())
      left_out.push_back({schedule, reason});
  }
  for (const ImpossibleSetting& one : left_out) std::erase(study.schedules, one.setting);
  if (study.schedules.empty()) throw UserError(left_out[0].reason);
  return left_out;
}

std::string to_toml(const Study& study) {
  std::string text = "# A study of lowtide: this, then the recipe that its runs have in common.\n";
  const Json json = varied(study);
  for (const auto& [key, value] : json.items()) text += fmt::format("{} = {}\n", key, value.dump());
  return text + "\n" + to_toml(study.recipe);
}

Study parse_study(std::string_view text, const std::string& name) {
  Study study;
  CLI::App app("a study's file", "study");
  app.allow_config_extras(CLI::config_extras_mode::error);
  define_study(app, study);
  std::istringstream stream{std::string(text)};
  try {
    app.parse_from_stream(stream);
    complete(study);
  } catch (const CLI::ParseError& error) {
    std::string what = error.what();
    std::replace(what.begin(), what.end(), '\n', ' ');
    throw UserError(fmt::format("{}: {}", name, what));
  } catch (const UserError& error) {
    throw UserError(fmt::format("{}: {}", name, error.what()));
  }
  return study;
}

Json determining_keys(const Study& study) {
  Json json = varied(study);
  json.update(determining_keys(study.recipe));
  json.erase("schedule");  // each member has its own
  return json;
}

std::vector<std::string> differences(const Study& a, const Study& b) {
  const Json left = determining_keys(a), right = determining_keys(b);
  std::set<std::string> keys;
  for (const auto& [key, value] : left.items()) {
    if (right.value(key, Json()) != value) keys.insert(key);
  }
  for (const auto& [key, value] : right.items()) {
    if (!left.contains(key)) keys.insert(key);
  }
  return {keys.begin(), keys.end()};
}

std::vector<Member> members(const Study& study) {
  if (study.kind == Study::kRangeTest) return range_members(study.recipe, range_options(study));
  const std::vector<Member> of_a_seed = settings(study, study.recipe);
  std::vector<Member> result;
  for (std::int64_t i = 0; i < study.seeds; ++i) {
    for (Member member : of_a_seed) {
      std::uint64_t& seed = member.recipe.training.seed;
      seed += static_cast<std::uint64_t>(i);
      member.name = fmt::format("{}-seed{}", folder_name(member.setting), seed);
      member.command = study.command;
      member.bits_of = bits_of(study, member);
      result.push_back(std::move(member));
    }
  }
  return result;
}

}  // namespace lowtide
