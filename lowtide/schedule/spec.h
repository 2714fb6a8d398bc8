#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lowtide/schedule/bits.h"
#include "lowtide/schedule/profile.h"
#include "lowtide/schedule/table.h"

namespace lowtide {

// When a progressive schedule takes the loss to have stopped falling: the mean over `window` losses was less
// than `threshold` (relative) below the best such mean, `patience` times in a row.
struct Plateau {
  std::int64_t window = 100;
  double threshold = 0.01;
  std::int64_t patience = 3;
  bool operator==(const Plateau&) const = default;
};

// The first part of a delayed schedule, or the tail of one: its length in steps, or in percent of all steps, and its
// bits (0: fp32), or the highest bits of the schedule beside it.
struct Part {
  std::int64_t steps = 0;
  std::optional<double> percent;
  std::optional<int> bits;
  bool operator==(const Part&) const = default;
};

// What a recipe says about precision. One line of text, and back:
//   RR 3:8 n=8 grad=8                     any of the ten; also k= (exponential) and c= (REX)
//   static 8 grad=8                       fp32
//   deficit 3:8 grad=8 steps=1000         low for the first 1000 steps, then high
//   window 3:8 grad=8 from=1000 to=2000   low in [1000, 2000), else high
//   delayed 500 RR 3:8 n=8 grad=8         high for 500 steps, then RR on the rest; also `25%`, `at=fp32`
//   table 8x100 5x1500 8x400 grad=8       8 bits for 100 steps, then 5 for 1500, then 8 for 400
//   progressive 3,4,6,8 grad=8 window=100 threshold=0.01 patience=3
//   matched 3:8 grad=8 budget=0.63        low where the learning rate is high; also alpha=
//   price 3:8 grad=8 budget=0.63          a closed loop: more bits where they buy more than more training does; also every=
//   waterfill 3:8 grad=8 budget=0.63      a closed loop with bits for every layer; also alpha= and every=
// Gradient bits may be a range, `grad=6:8`: they then move with the forward bits. Or they have a schedule of their own,
// `grad=(LR 6:8 n=2)`. A budget, `budget=0.63`, is a share of what static at the highest bits costs. All but progressive may
// end otherwise: `then fp32 last=5%` (forward and gradients), `then 32 last=5%` (forward alone).
struct ScheduleSpec {
  std::string name = "RR";  // canonical; that of the inner schedule if it is delayed
  BitRange bits{3, 8};
  BitRange grad{8, 8};
  std::int64_t cycles = 8;
  double k = ProfileParameters{}.k;
  double c = ProfileParameters{}.c;
  std::int64_t steps = 0;   // deficit
  std::int64_t from = 0;    // window
  std::int64_t to = 0;      // window
  std::vector<int> levels;  // progressive; bits holds its ends
  BitTable table;           // table; bits holds its lowest and highest
  Plateau plateau;
  double alpha = 1.0;        // matched, waterfill
  std::int64_t every = 100;  // price, waterfill: steps of an interval
  std::optional<double> budget;
  std::vector<ScheduleSpec>
      grad_line;  // of the gradient bits, if they have one of their own; grad holds its ends
  bool is_grad_line = false;
  std::optional<Part> delay;
  std::optional<Part> tail;

  bool operator==(const ScheduleSpec&) const = default;

  // Closed loops decide while they run: what they have told before is a plan, or where they begin.
  bool is_closed_loop() const { return name == "progressive" || decides_by_budget(); }
  // In intervals, so that a budget is met.
  bool decides_by_budget() const { return name == "price" || name == "waterfill"; }
  // Bits follow the learning rate, or are planned to.
  bool follows_rates() const { return name == "matched" || decides_by_budget(); }

  // Asks for losses between steps.
  bool probes() const { return name == "price"; }
  // Asks how sensitive layers are.
  bool looks() const { return name == "waterfill"; }

  // The highest precision between delay and tail: what a budget is a share of.
  Bits highest() const;
  // What training ends with: those of the tail, or the highest. A model is evaluated at them.
  Bits last() const;
};

// Throws UserError, of one line, if the text is not a schedule or not a possible one.
ScheduleSpec parse_schedule(std::string_view text);
std::string to_string(const ScheduleSpec& spec);

// Throws UserError unless the schedule is possible; with the number of steps known, also in that many steps.
void check(const ScheduleSpec& spec);
void check(const ScheduleSpec& spec, std::int64_t total_steps);

// The steps before a delayed schedule starts, and those of a tail; 0 if there is none.
std::int64_t delay_steps(const ScheduleSpec& spec, std::int64_t total_steps);
std::int64_t tail_steps(const ScheduleSpec& spec, std::int64_t total_steps);
// The bits of a delay or a tail. In fp32 its gradients are in fp32 too.
Bits part_bits(const Part& part, Bits highest);

}  // namespace lowtide
