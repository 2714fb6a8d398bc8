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

// Holm's correction of those that have a p.
void adjust(const std::vector<Contrast*>& contrasts);

// What two means may differ by from noise alone: the standard error of a difference, pooled over all settings.
double noise_of_means(const Analysis& analysis);

}  // namespace lowtide
