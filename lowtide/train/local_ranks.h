#pragma once

#include <optional>

#include "lowtide/ranks/environment.h"

namespace lowtide {

// Starts `count` copies of this process as ranks on this machine: to be called before it has threads. Returns in each of
// them, with what that one is.
//
// In this process it returns when all have ended, with nothing and their exit code in `code`: that of the one that failed,
// if any did; 1, and one line that says which and why, where a rank was killed. Stop signals are passed on: the code is then 128 +
// the signal, also where it came before training began and there was nothing to save. If this process is killed, the ranks are
// told to stop. Where one has failed and others do not end by themselves, they are killed. `saves`: whether they write checkpoints.
std::optional<RankEnvironment> start_local_ranks(int count, int& code, bool saves = true);

}  // namespace lowtide
