#include "lowtide/schedule/budget.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "lowtide/base/error.h"
#include "lowtide/schedule/bits.h"

namespace lowtide {
namespace {

constexpr FixedBits kOne = FixedBits{1} << kFixedPoint;

FixedBits shifted(FixedBits wanted, std::int64_t shift, BitRange range) {
  return static_cast<FixedBits>(std::clamp<std::int64_t>(wanted + shift, std::int64_t{range.low} * kOne,
                                                         std::int64_t{range.high} * kOne));
}

// What a step costs in the mean that is dithered between the two whole numbers of bits around `bits`, times kOne.
std::int64_t dithered_cost(FixedBits bits, int gradient) {
  const int low = bits / kOne;
  const std::int64_t cost = step_cost({low, gradient});
  return cost * kOne + (step_cost({low + 1, gradient}) - cost) * (bits % kOne);
}

std::int64_t dithered_cost(const Spending& spending, std::int64_t shift) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < spending.wanted.size(); ++i)
    sum += dithered_cost(shifted(spending.wanted[i], shift, spending.range), spending.gradient[i]);
  return sum;
}

// The largest shift of the profile that the budget allows.
std::int64_t find_shift(const Spending& spending, std::int64_t budget) {
  const auto [least, most] = std::minmax_element(spending.wanted.begin(), spending.wanted.end());
  std::int64_t low = std::int64_t{spending.range.low} * kOne - *most;
  std::int64_t high = std::int64_t{spending.range.high} * kOne - *least;
  while (low < high) {
    const std::int64_t middle = low + (high - low + 1) / 2;
    if (dithered_cost(spending, middle) <= budget * kOne) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

struct Diffused {
  std::vector<std::uint8_t> bits;
  BitRange range{kMostBits, kFewestBits};  // of the shifted profile, outwards
  std::int64_t unspent = 0;                // negative: spent too much
};

Diffused diffuse(const Spending& spending, std::int64_t shift, std::int64_t budget) {
  Diffused result;
  result.unspent = budget;
  std::int64_t credit = budget * kOne - dithered_cost(spending, shift);  // times kOne
  for (std::size_t i = 0; i < spending.wanted.size(); ++i) {
    const FixedBits wanted = shifted(spending.wanted[i], shift, spending.range);
    const int gradient = spending.gradient[i];
    const int low = wanted / kOne;
    const bool is_fractional = wanted % kOne != 0;
    credit += dithered_cost(wanted, gradient);
    const std::int64_t middle = (step_cost({low, gradient}) + step_cost({low + 1, gradient})) * kOne / 2;
    const int bits = is_fractional && credit >= middle ? low + 1 : low;
    credit -= step_cost({bits, gradient}) * kOne;
    result.unspent -= step_cost({bits, gradient});
    result.bits.push_back(static_cast<std::uint8_t>(bits));
    result.range.low = std::min(result.range.low, low);
    result.range.high = std::max(result.range.high, is_fractional ? low + 1 : low);
  }
  return result;
}

// A change by a bit of one of the last steps, and what it costs.
struct Change {
  std::size_t step = 0;
  int bits = 0;
  std::int64_t cost = 0;
};

// Of each number of bits the last steps that can be raised, and the last that can be lowered: raising 3 bits costs other
// than raising 7, and many differences make a coin of 1.
std::vector<std::vector<Change>> possible_changes(const Spending& spending, const Diffused& diffused) {
  constexpr int kOfEach = 8;
  std::vector<std::vector<Change>> result;
  std::array<std::array<int, kMostBits + 1>, 2> found{};
  for (std::size_t i = diffused.bits.size(); i-- > 0;) {
    std::vector<Change> changes;
    const int current = diffused.bits[i], gradient = spending.gradient[i];
    for (const int by : {-1, 1}) {
      const int bits = current + by;
      if (bits < diffused.range.low || bits > diffused.range.high) continue;
      int& count = found[by > 0 ? 1 : 0][static_cast<std::size_t>(current)];
      if (count == kOfEach) continue;
      ++count;
      changes.push_back({i, bits, step_cost({bits, gradient}) - step_cost({current, gradient})});
    }
    if (!changes.empty()) result.push_back(std::move(changes));
  }
  return result;
}

// Exact change: the fewest changes whose costs add up to what is unspent, or to as little less as can be. fewest[i][index_of(sum)]
// is the number that the steps from the i-th on need for this sum.
void make_change(const Spending& spending, Diffused& diffused) {
  const auto steps = possible_changes(spending, diffused);
  constexpr std::int64_t kSlack = 512;  // several changes of a bit, the dearest of which is 2·31 + 1 + 2·32
  const std::int64_t largest_sum = std::abs(diffused.unspent) + kSlack;
  constexpr int kNever = std::numeric_limits<int>::max() / 2;
  const auto index_of = [&](std::int64_t sum) { return static_cast<std::size_t>(sum + largest_sum); };
  std::vector<std::vector<int>> fewest(steps.size() + 1, std::vector<int>(index_of(largest_sum) + 1, kNever));
  fewest[steps.size()][index_of(0)] = 0;
  const auto fewest_with = [&](std::size_t i, std::int64_t sum, const Change& change) {
    const std::int64_t rest = sum - change.cost;
    return std::abs(rest) > largest_sum ? kNever : 1 + fewest[i + 1][index_of(rest)];
  };
  for (std::size_t i = steps.size(); i-- > 0;) {
    for (std::int64_t sum = -largest_sum; sum <= largest_sum; ++sum) {
      int& best = fewest[i][index_of(sum)] = fewest[i + 1][index_of(sum)];
      for (const Change& change : steps[i]) best = std::min(best, fewest_with(i, sum, change));
    }
  }
  std::int64_t sum = diffused.unspent;
  while (sum > -largest_sum && fewest[0][index_of(sum)] >= kNever) --sum;
  LOWTIDE_CHECK(fewest[0][index_of(sum)] < kNever, "a budget that no change of the last steps meets");
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (fewest[i][index_of(sum)] == fewest[i + 1][index_of(sum)]) continue;
    const auto change = std::find_if(steps[i].begin(), steps[i].end(), [&](const Change& candidate) {
      return fewest_with(i, sum, candidate) == fewest[i][index_of(sum)];
    });
    diffused.bits[change->step] = static_cast<std::uint8_t>(change->bits);
    sum -= change->cost;
  }
}

}  // namespace

FixedBits to_fixed(double bits) {
  constexpr double kFar = 64;  // beyond any range of bits, with any shift
  return static_cast<FixedBits>(std::lround(std::clamp(bits, -kFar, kFar) * kOne));
}

std::int64_t Spending::cost_at(int bits) const {
  std::int64_t sum = 0;
  for (const std::uint8_t backward : gradient) sum += step_cost({bits, backward});
  return sum;
}

std::vector<std::uint8_t> spend(const Spending& spending, std::int64_t budget) {
  LOWTIDE_CHECK(!spending.wanted.empty() && budget >= spending.cost_at(spending.range.low),
                "a budget that is too small");
  Diffused diffused = diffuse(spending, find_shift(spending, budget), budget);
  make_change(spending, diffused);
  return diffused.bits;
}

}  // namespace lowtide
