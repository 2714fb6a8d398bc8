#pragma once

#include <string>

#include "lowtide/ranks/environment.h"

namespace lowtide {

// UserError for a place at which ranks cannot meet: a name of rank 0's machine that stands for no address here, a port that
// rank 0 would listen at and another process has, or one at which nobody listens for as long as this rank has patience. c10d
// would try, too, and log every time.
void check_rendezvous(const RankEnvironment& environment);

// The address that a machine's name stands for here, in numbers; as it is where it stands for none.
std::string numeric_address(const std::string& host);
// Whether it is of use on this machine alone.
bool is_loopback(const std::string& address);

}  // namespace lowtide
