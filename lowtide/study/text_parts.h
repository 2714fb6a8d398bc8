#pragma once

#include <string>

#include "lowtide/study/analysis.h"

namespace lowtide {

// Parts of the text of an analysis.

std::string interval_text(const Metric& metric, const Interval& interval);  // "[-0.31, +0.12]"
std::string unit_of(const Metric& metric);
std::string mean_text(const Metric& metric, const Setting& setting);       // "89.30 ± 0.25"
std::string contrast_cells(const Metric& metric, const Setting& setting);  // difference | 95 % | p
std::string judged_at_text(const Setting& setting,
                           const char* between);  // "8", or "4, 8" of runs that differ
// What the columns of contrast_cells hold, and what so many seeds can tell.
std::string test_note(const Analysis& analysis);

// What a budget study shows, after its title.
std::string budget_body(const Analysis& analysis);

}  // namespace lowtide
