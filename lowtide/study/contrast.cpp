#include "lowtide/study/contrast.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lowtide/study/equal_cost.h"

namespace lowtide {
namespace {

void adjust(const std::vector<Contrast*>& contrasts) {
  std::vector<double> p;
  for (const Contrast* contrast : contrasts) {
    if (contrast->unadjusted) p.push_back(*contrast->unadjusted);
  }
  const std::vector<double> adjusted = holm(p);
  auto next = adjusted.begin();
  for (Contrast* contrast : contrasts) {
    if (contrast->unadjusted) contrast->p = *next++;
  }
}

}  // namespace

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
  const std::optional<double> p = seeds >= kFewestSeeds ? std::optional(test->p) : std::nullopt;
  return {.difference = test->difference,
          .test = paired ? fmt::format("paired t, {} seeds", ours.size()) : "Welch",
          .interval = test->interval,
          .unadjusted = p,
          .p = p};
}

void adjust(Questions& questions) {
  adjust(questions.reference);
  adjust(questions.bits_alone);
  adjust(questions.best);
  adjust(questions.against_best);
  adjust(questions.copies);
  adjust(questions.frozen);
  adjust(questions.frozen_best);
}

void ask(Questions& questions, Analysis& analysis) {
  for (Setting& setting : analysis.settings) {
    auto& question = loop_copied_by(setting.way) ? questions.bits_alone : questions.reference;
    if (setting.contrast) question.push_back(&*setting.contrast);
  }
  for (BestOfTen& best : analysis.best_of_ten) {
    questions.best.push_back(&best.contrast);
    for (WayContrast& way : best.ways) questions.against_best.push_back(&way.contrast);
  }
  for (LoopAndCopies& loops : analysis.loops) {
    for (WayContrast& way : loops.ways) questions.copies.push_back(&way.contrast);
  }
  for (FrozenWay& frozen : analysis.frozen) {
    questions.frozen.push_back(&frozen.from_reference.contrast);
    if (frozen.from_best) questions.frozen_best.push_back(&frozen.from_best->contrast);
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
