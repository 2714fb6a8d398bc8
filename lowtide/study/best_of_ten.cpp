#include "lowtide/study/best_of_ten.h"

#include <algorithm>

#include "lowtide/schedule/cycles.h"
#include "lowtide/study/contrast.h"
#include "lowtide/study/equal_cost.h"

namespace lowtide {
namespace {

constexpr const char* kBestOfTen = "the best of the ten";

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

// By the held-out items, so that the test set does not choose what it then judges.
bool has_held_out(const std::vector<const Setting*>& ten) {
  return std::all_of(ten.begin(), ten.end(),
                     [](const Setting* one) { return one->held_out.size() == one->by_seed.size(); });
}

const Setting& best_on(const Metric& metric, const std::vector<const Setting*>& ten,
                       const std::vector<std::uint64_t>& seeds) {
  const bool held_out = has_held_out(ten);
  const auto picked_mean = [&](const Setting* one) {
    return mean_over(held_out ? one->held_out : one->by_seed, seeds);
  };
  return **std::min_element(ten.begin(), ten.end(), [&](const Setting* a, const Setting* b) {
    return is_better(metric, picked_mean(a), picked_mean(b));
  });
}

// Leaves one seed out at a time: what is the best on the others is tested on it.
BestOfTen pick_and_test(const Analysis& analysis, const std::vector<const Setting*>& ten,
                        const Setting& reference) {
  BestOfTen result{.budget = *reference.budget, .seeds = shared_seeds(ten, reference)};
  if (result.seeds.size() < kFewestSeeds) return result;
  result.split = has_held_out(ten) ? "held-out" : "test";
  Setting picked{.name = kBestOfTen};
  for (const std::uint64_t seed : result.seeds) {
    std::vector<std::uint64_t> others = result.seeds;
    std::erase(others, seed);
    const Setting& best = best_on(*analysis.metric, ten, others);
    result.picks[seed] = best.way;
    picked.by_seed[seed] = best.by_seed.at(seed);
  }
  picked.mean = mean(values_of(picked));
  result.contrast = contrast(picked, reference);
  for (const Setting& setting : analysis.settings) {
    if (setting.budget == result.budget && is_tested_against_best(analysis, setting) &&
        !pairs_of(setting, picked).ours.empty())
      result.ways.push_back(compare(setting.way, setting, kBestOfTen, picked));
  }
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
