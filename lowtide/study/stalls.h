#pragma once

#include <cstdint>

#include "lowtide/study/folder.h"

namespace lowtide {

// A scheduler starts a run again that was stopped. One whose start takes longer than its time would be started without end:
// so it is counted how often in a row a member was stopped before it made a step, and after so many times it has failed.
constexpr int kMostStalls = 5;

// The step that a member goes on from: its last checkpoint's; of a user's script, which keeps what it likes, that of its last
// line of metrics.
std::int64_t kept_step(const MemberPaths& paths);

// Notes one more, in the member's folder; how many it is in a row.
int add_stall(const MemberPaths& paths);
void forget_stalls(const MemberPaths& paths);

}  // namespace lowtide
