#pragma once

#include <functional>
#include <memory>
#include <string>

#include "lowtide/ranks/c10d_ranks.h"

namespace lowtide {

// Joins the other ranks and does this one's part of a work; returns the exit code. One of the ranks tells of a failure; the others
// end without a word. `problem` is as for C10dRanks::join.
int work_as_rank(const RankEnvironment& mine, const std::string& device, const std::string& problem,
                 const std::function<int(const std::shared_ptr<C10dRanks>&)>& work);

}  // namespace lowtide
