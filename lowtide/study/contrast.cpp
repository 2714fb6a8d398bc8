#include "lowtide/study/contrast.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lowtide {

std::vector<double> values_of(const Setting& setting) {
  std::vector<double> result;
  for (const auto& [seed, value] : setting.by_seed) result.push_back(value);
  return result;
}

Pairs pairs_of(const Setting& setting, const Setting& reference) {
  Pairs pairs;
  for (const auto& [seed, value] : setting.by_seed) {
    const auto other = reference.by_seed.find(seed);
    if (other == reference.by_seed.end()) continue;
    pairs.ours.push_back(value);
    pairs.theirs.push_back(other->second);
  }
  return pairs;
}

// Runs of one seed share weights, order and augmentation: pairs take that part of the noise out.
Contrast contrast(const Setting& setting, const Setting& reference) {
  const auto [ours, theirs] = pairs_of(setting, reference);
  const bool paired = ours.size() >= 2;
  const auto test =
      paired ? paired_t_test(ours, theirs) : welch_t_test(values_of(setting), values_of(reference));
  if (!test)
    return {.difference = paired ? mean(ours) - mean(theirs) : setting.mean - reference.mean, .test = ""};
  const std::size_t seeds = paired ? ours.size() : std::min(setting.by_seed.size(), reference.by_seed.size());
  return {.difference = test->difference,
          .test = paired ? fmt::format("paired t, {} seeds", ours.size()) : "Welch",
          .interval = test->interval,
          .p = seeds >= kFewestSeeds ? std::optional(test->p) : std::nullopt};
}

void adjust(const std::vector<Contrast*>& contrasts) {
  std::vector<double> p;
  for (const Contrast* contrast : contrasts) {
    if (contrast->p) p.push_back(*contrast->p);
  }
  const std::vector<double> adjusted = holm(p);
  auto next = adjusted.begin();
  for (Contrast* contrast : contrasts) {
    if (contrast->p) contrast->p = *next++;
  }
}

double noise_of_means(const Analysis& analysis) {
  double squares = 0, degrees = 0, seeds = 0, settings = 0;
  for (const Setting& setting : analysis.settings) {
    if (!setting.deviation) continue;
    const auto n = static_cast<double>(setting.by_seed.size());
    squares += (n - 1) * *setting.deviation * *setting.deviation;
    degrees += n - 1;
    seeds += n;
    settings += 1;
  }
  return degrees > 0 ? std::sqrt(2 * squares / degrees / (seeds / settings)) : 0;
}

}  // namespace lowtide
