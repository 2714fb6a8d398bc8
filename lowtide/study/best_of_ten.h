#pragma once

#include <vector>

#include "lowtide/study/analysis.h"

namespace lowtide {

// At each budget of an analysis whose settings have all their seeds. Their p are not adjusted yet.
std::vector<BestOfTen> best_of_ten(const Analysis& analysis);

// Of the same.
std::vector<LoopAndCopies> loops_and_copies(const Analysis& analysis);

}  // namespace lowtide
