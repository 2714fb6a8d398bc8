#pragma once

#include <cstdint>
#include <vector>

#include "lowtide/schedule/profile.h"

namespace lowtide {

// A budget in steps: what each may cost is computed and kept, a byte a step.
constexpr std::int64_t kMostBudgetSteps = 1'000'000;

// Numbers of bits that are not whole, in units of 2^-20: sums of them are exact, and do not hang on the last bit of a
// floating-point number.
using FixedBits = std::int32_t;
constexpr int kFixedPoint = 20;
FixedBits to_fixed(double bits);

// What is spent on: the forward bits that a profile wants in each step, up to a constant, within `range`, and the
// gradient bits beside them.
struct Spending {
  std::vector<FixedBits> wanted;
  std::vector<std::uint8_t> gradient;
  BitRange range;

  // The bit operations of a MAC (step_cost) over all steps, at the same forward bits throughout.
  std::int64_t cost_at(int bits) const;
};

// The forward bits of each step. The profile is shifted by the one constant, and clipped to the range, at which it costs
// `budget`; error diffusion makes whole bits of it: what a step costs less than its share, later ones may cost more. Then
// some steps, the last of their bits, are raised or lowered by a bit, so few as can be, until the sum is the budget; where no change
// hits it, the sum is below it, by less than raising one more step would cost. The budget is at least cost_at(range.low).
std::vector<std::uint8_t> spend(const Spending& spending, std::int64_t budget);

}  // namespace lowtide
