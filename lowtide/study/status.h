#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lowtide/study/slurm.h"
#include "lowtide/study/study.h"

namespace lowtide {

enum class MemberState {
  kDone,
  kRunning,
  kSaved,
  kFailed,
  kWaiting
};  // kSaved: it goes on from a checkpoint

struct MemberStatus {
  std::string name;
  MemberState state = MemberState::kWaiting;
  std::int64_t step = 0, steps = 0;  // done, or where it will go on; and in all
  double seconds = 0;                // so far
  std::string host{};                // of one that runs
  std::string note{};                // why it failed; where it runs; what it waits for
};

// Where each member stands, from its folder alone; also while they run.
std::vector<MemberStatus> read_status(const std::vector<Member>& members,
                                      const std::filesystem::path& folder);

// What SLURM knows of the members beyond that: which wait in its queue, and which it does not have any more.
void add_queue(std::vector<MemberStatus>& members, const SlurmQueue& queue);

// How long the members that wait, run or were interrupted will take, so many at once, by what a step took so
// far: in those that are done, or else in those under way. Not finite where none tells. Those that failed are
// not counted.
double seconds_left(const std::vector<MemberStatus>& members, int at_once);

std::string status_text(const std::vector<MemberStatus>& members);
Json to_json(const std::vector<MemberStatus>& members);

}  // namespace lowtide
