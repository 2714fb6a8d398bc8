#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lowtide/recipe/recipe.h"

namespace lowtide {

// Ways to spend a budget, a share of the bit operations of static training at the recipe's highest bits:
//   CR, RR …    one of the ten, scaled to the budget
//   matched     bits that follow the learning rate
//   price       a closed loop; and the bits that it had, shuffled in time, and as it had them with another seed
//   waterfill   a closed loop with bits for every layer; and its bits likewise
//   constant    two neighbouring numbers of bits, dithered
//   shorter     the highest bits for so many steps less, with the learning rate's schedule over those that are left
//   5 then 8    two phases: low bits first, the highest last
//   a line      any schedule that can have a budget
// All but the ten, matched and the loops are controls: what a schedule has to beat. Constant is what all are compared with.
namespace ways {
constexpr const char* kMatched = "matched";
constexpr const char* kPrice = "price";
constexpr const char* kWaterfill = "waterfill";
constexpr const char* kConstant = "constant";
constexpr const char* kShorter = "shorter";
constexpr const char* kPhases =
    "phases";  // as it is asked for: every number of low bits that can meet the budget
}  // namespace ways

// The closed loops that decide by a budget.
const std::vector<std::string>& loops();
std::string shuffled_loop(const std::string& loop);
std::string replayed_loop(const std::string& loop);
// The loop whose runs' bits a way has, which has no schedule of its own; or nothing.
std::optional<std::string> loop_copied_by(const std::string& way);

// What a user asks for, `all` and lists with commas, as single names and lines; `all` of a script without the loops, which ask
// `lowtide train`. UserError for what is neither.
std::vector<std::string> budget_schedules(const std::vector<std::string>& given, bool of_script = false);

// Of one of these: the closed loop that it is, or nothing.
std::optional<std::string> loop_of(const std::string& schedule);

// The ways at a budget that a name or line of budget_schedules stands for: one, but for the phases and the loops. Phases of
// which none meets the budget are `phases`.
std::vector<std::string> ways_of(const std::string& schedule, const Recipe& recipe, double budget);

// Sets eval-bits, unless the recipe asks for some, to the highest forward bits of the last tenth of its steps, where those
// are not what it would be judged at: a network that never had 8 bits is worse at 8. What decides while it runs, or ends in
// a tail, stays as it is. UserError where the schedule is not possible.
void judge_at_last_bits(Recipe& recipe);

// The recipe, whose steps are known, with the budget spent in this way, to the step and never exceeded, and judged at its
// last bits. With the bits of a loop's runs: the loop, in whose place they come, judged as the loop; where they are shuffled,
// and end at any of them, as constant bits. UserError where this way cannot spend it.
Recipe spend_budget(const Recipe& recipe, const std::string& way, double budget);

// The schedule at the recipe's highest bits: what a budget is a share of.
ScheduleSpec full_cost_schedule(const PrecisionOptions& precision);

}  // namespace lowtide
