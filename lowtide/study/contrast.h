#pragma once

#include <vector>

#include "lowtide/study/analysis.h"

namespace lowtide {

std::vector<double> values_of(const Setting& setting);

// The values of the seeds that both have.
struct Pairs {
  std::vector<double> ours, theirs;
};
Pairs pairs_of(const Setting& setting, const Setting& reference);

// Paired over the seeds that both have; Welch's test where they share fewer than two. p is not adjusted yet.
Contrast contrast(const Setting& setting, const Setting& reference);

// What is asked of a study, each by contrasts of its own, over which p are adjusted.
struct Questions {
  std::vector<Contrast*> reference;     // is a setting better than the reference?
  std::vector<Contrast*> bits_alone;    // are a loop's bits, shuffled or replayed, better than it?
  std::vector<Contrast*> best;          // is the best of the ten better than constant bits?
  std::vector<Contrast*> against_best;  // is another way better than the best of the ten?
  std::vector<Contrast*> copies;        // is a loop better than its own bits?
  std::vector<Contrast*> frozen;       // is the one way that was frozen beforehand better than the reference?
  std::vector<Contrast*> frozen_best;  // is it better than the best of the ten?
};
void ask(Questions& questions, Analysis& analysis);

// Holm's correction of those that have a p, for each question.
void adjust(Questions& questions);

// What two means may differ by from noise alone: the standard error of a difference, pooled over all settings.
double noise_of_means(const Analysis& analysis);

}  // namespace lowtide
