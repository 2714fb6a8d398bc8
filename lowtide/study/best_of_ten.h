#pragma once

#include <vector>

#include "lowtide/study/analysis.h"

namespace lowtide {

// At each budget of an analysis whose settings have all their seeds.
std::vector<BestOfTen> best_of_ten(const Analysis& analysis);

}  // namespace lowtide
