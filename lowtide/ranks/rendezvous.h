#pragma once

#include "lowtide/ranks/environment.h"

namespace lowtide {

// UserError for a place at which ranks cannot meet: a name of rank 0's machine that stands for no address here, or a port that
// rank 0 would listen at and another process has. c10d tries for minutes, and logs every time.
void check_rendezvous(const RankEnvironment& environment);

}  // namespace lowtide
