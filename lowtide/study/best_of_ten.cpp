#include "lowtide/study/best_of_ten.h"

#include <algorithm>

#include "lowtide/schedule/cycles.h"
#include "lowtide/study/contrast.h"

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

Setting only(const Setting& setting, const std::vector<std::uint64_t>& seeds) {
  Setting result{.name = setting.name};
  for (const std::uint64_t seed : seeds) result.by_seed[seed] = setting.by_seed.at(seed);
  result.mean = mean_over(result.by_seed, seeds);
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
  std::vector<Contrast*> contrasts;
  for (BestOfTen& one : result) contrasts.push_back(&one.contrast);
  adjust(contrasts);
  return result;
}

}  // namespace lowtide
