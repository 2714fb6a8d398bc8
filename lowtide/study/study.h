#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lowtide/recipe/recipe.h"
#include "lowtide/schedule/schedule.h"

namespace CLI {
class App;
}

namespace lowtide {

// A way that cannot spend a budget in this recipe, and why.
struct ImpossibleSetting {
  std::string setting, reason;
};

// What a study is: a recipe, what is varied, and how many seeds. Each member but the recipe is a flag of `lowtide study
// suite`, `study budget`, `study critical` or `range-test` and a key of the study's file, which is a recipe file with
// these keys added.
struct Study {
  static constexpr const char* kSuite = "suite";
  static constexpr const char* kBudget = "budget";
  static constexpr const char* kCritical = "critical";
  static constexpr const char* kRangeTest = "range-test";

  std::string kind;
  std::vector<std::string> schedules;  // suite and budget: names, or whole lines
  std::vector<double> budgets;         // budget: shares of what static at the highest bits costs
  std::vector<std::int64_t> deficits;  // critical, in steps from the first; the normal training follows
  std::int64_t window = 0;  // or critical, a deficit of this length … (range-test: steps that are averaged)
  std::vector<std::int64_t> starts;  // … at each of these steps within the normal training
  std::int64_t test_steps = 0;       // range-test, at each number of bits
  double threshold = 0;              // range-test: what counts as moving
  std::int64_t seeds = 3;            // the recipe's, and those that follow it; a range test has that one
  std::string command;               // what a member runs instead of `lowtide train`: script.h
  Recipe recipe;
  std::vector<ImpossibleSetting> impossible{};  // budget: found when it was checked, and no members of it
};

// Adds the keys of the study's kind, or of every kind if it has none yet, and those of the recipe.
void define_study(CLI::App& app, Study& study);

// `all` and lists with commas become single schedules, names canonical ones; a critical study gets the member
// without a deficit that the others are compared with. Then everything is checked: UserError. Of a budget study what cannot
// spend a budget is noted and left out, unless nothing can.
void complete(Study& study);

// Takes the schedules out of a budget study that could not be in a network of these layers, which complete() does not know: those
// with bits for every layer. Gives what was left out; UserError where nothing is left.
std::vector<ImpossibleSetting> fit_to_layers(Study& study, const std::vector<LayerSize>& layers);
bool has_bits_for_layers(const Study& study);

// As a file that gives the same study; and back. `name` is that of the file, for messages.
std::string to_toml(const Study& study);
Study parse_study(std::string_view text, const std::string& name);

// The keys in which two studies differ, what only says how it runs left out.
std::vector<std::string> differences(const Study& a, const Study& b);
Json determining_keys(const Study& study);

// A control of a closed loop: the bits that another member had, known when that one is done.
struct BitsOf {
  std::string member;     // its name
  bool shuffled = false;  // in time
};

// One run of a study.
struct Member {
  std::string name;     // of its folder: RR-seed1, deficit-500-seed2
  std::string setting;  // what is varied, the same for all seeds: RR, deficit 500
  // critical: the deficit's length, or the window's start; not for the one without. range-test: the bits.
  std::optional<std::int64_t> at;
  Recipe recipe;
  std::string command{};  // the study's
  // budget, but for static at full cost:
  std::optional<double> budget{};
  std::string way{};                // to spend it (equal_cost.h)
  std::optional<BitsOf> bits_of{};  // in the place of the recipe's schedule
};

// Seed by seed, so that a study that was stopped early has whole seeds.
std::vector<Member> members(const Study& study);

}  // namespace lowtide
