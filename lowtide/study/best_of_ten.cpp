#include "lowtide/study/best_of_ten.h"

#include <algorithm>

#include "lowtide/schedule/cycles.h"
#include "lowtide/study/contrast.h"
#include "lowtide/study/equal_cost.h"

namespace lowtide {
namespace {

// A test takes its seeds, and the pick one more.
constexpr std::size_t kFewestToSplit = kFewestSeeds + 1;

using Values = std::map<std::uint64_t, double>;

bool is_of_the_ten(const Setting& setting) { return setting.budget && find_cyclic(setting.way) != nullptr; }

std::vector<const Setting*> ten_at(const Analysis& analysis, double budget) {
  std::vector<const Setting*> result;
  for (const Setting& setting : analysis.settings) {
    if (is_of_the_ten(setting) && setting.budget == budget) result.push_back(&setting);
  }
  return result;
}

// Those that all of them have, and the one that they are compared with.
std::vector<std::uint64_t> shared_seeds(const std::vector<const Setting*>& ten, const Setting& reference) {
  std::vector<std::uint64_t> result;
  for (const auto& [seed, value] : reference.by_seed) {
    const bool shared = std::all_of(
        ten.begin(), ten.end(), [seed = seed](const Setting* one) { return one->by_seed.contains(seed); });
    if (shared) result.push_back(seed);
  }
  return result;
}

double mean_over(const Values& values, const std::vector<std::uint64_t>& seeds) {
  std::vector<double> some;
  for (const std::uint64_t seed : seeds) some.push_back(values.at(seed));
  return mean(some);
}

// With those of these seeds that it has.
Setting only(const Setting& setting, const std::vector<std::uint64_t>& seeds) {
  Setting result{.name = setting.name};
  for (const std::uint64_t seed : seeds) {
    const auto of_seed = setting.by_seed.find(seed);
    if (of_seed != setting.by_seed.end()) result.by_seed.insert(*of_seed);
  }
  if (!result.by_seed.empty()) result.mean = mean(values_of(result));
  return result;
}

WayContrast compare(const std::string& way, const Setting& setting, const std::string& reference_way,
                    const Setting& reference) {
  return {.way = way,
          .reference = reference_way,
          .seeds = pairs_of(setting, reference).ours.size(),
          .contrast = contrast(setting, reference)};
}

// But constant, which the best is tested against, what shares its pick, and copies of loops.
bool is_tested_against_best(const Analysis& analysis, const Setting& setting) {
  return setting.budget && setting.way != analysis.reference && !is_of_the_ten(setting) &&
         !loop_copied_by(setting.way);
}

std::vector<WayContrast> against_best(const Analysis& analysis, const BestOfTen& best,
                                      const Setting& of_best) {
  const Setting reference = only(of_best, best.tested);
  std::vector<WayContrast> result;
  for (const Setting& setting : analysis.settings) {
    if (setting.budget != best.budget || !is_tested_against_best(analysis, setting)) continue;
    const Setting tested = only(setting, best.tested);
    if (!pairs_of(tested, reference).ours.empty())
      result.push_back(compare(setting.way, tested, best.way, reference));
  }
  return result;
}

BestOfTen pick_and_test(const Analysis& analysis, const std::vector<const Setting*>& ten,
                        const Setting& reference) {
  BestOfTen result{.budget = *reference.budget, .way = "", .picked = shared_seeds(ten, reference)};
  if (result.picked.size() < kFewestToSplit) return result;
  // The later half is tested on, or as many more as a test takes.
  const std::size_t tested = std::max(kFewestSeeds, (result.picked.size() + 1) / 2);
  const auto first = result.picked.end() - static_cast<std::ptrdiff_t>(tested);
  result.tested.assign(first, result.picked.end());
  result.picked.erase(first, result.picked.end());
  // By the held-out items, so that the test set does not choose what it then judges.
  const bool held_out = std::all_of(
      ten.begin(), ten.end(), [](const Setting* one) { return one->held_out.size() == one->by_seed.size(); });
  result.split = held_out ? "held-out" : "test";
  const auto picked_mean = [&](const Setting* one) {
    return mean_over(held_out ? one->held_out : one->by_seed, result.picked);
  };
  const Setting* best = *std::min_element(ten.begin(), ten.end(), [&](const Setting* a, const Setting* b) {
    return is_better(*analysis.metric, picked_mean(a), picked_mean(b));
  });
  result.way = best->way;
  result.contrast = contrast(only(*best, result.tested), only(reference, result.tested));
  result.ways = against_best(analysis, result, *best);
  return result;
}

}  // namespace

std::vector<BestOfTen> best_of_ten(const Analysis& analysis) {
  std::vector<BestOfTen> result;
  for (const double budget : analysis.study.budgets) {
    const std::vector<const Setting*> ten = ten_at(analysis, budget);
    const Setting* reference = find_at_budget(analysis, analysis.reference, budget);
    if (!ten.empty() && reference != nullptr) result.push_back(pick_and_test(analysis, ten, *reference));
  }
  return result;
}

std::vector<LoopAndCopies> loops_and_copies(const Analysis& analysis) {
  std::vector<LoopAndCopies> result;
  for (const double budget : analysis.study.budgets) {
    LoopAndCopies at{.budget = budget};
    for (const std::string& loop : loops()) {
      const Setting* own = find_at_budget(analysis, loop, budget);
      for (const std::string& copy : {shuffled_loop(loop), replayed_loop(loop)}) {
        const Setting* of_copy = find_at_budget(analysis, copy, budget);
        if (own == nullptr || of_copy == nullptr || pairs_of(*own, *of_copy).ours.empty()) continue;
        at.ways.push_back(compare(loop, *own, copy, *of_copy));
      }
    }
    if (!at.ways.empty()) result.push_back(std::move(at));
  }
  return result;
}

}  // namespace lowtide
