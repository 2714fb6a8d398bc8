#include <cstdint>

#include "fuzz/deep.h"
#include "lowtide/base/error.h"
#include "lowtide/study/slurm.h"

// What SLURM says of its queue is a UserError, or tasks of the study's own members and jobs; a list of indices that is
// understood is the same after it was written.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lowtide;
  constexpr std::size_t kMembers = 100;
  const std::string text = deepened(data, size);
  if (const auto indices = parse_index_ranges(text, kMembers); indices && !indices->empty())
    LOWTIDE_CHECK(parse_index_ranges(index_ranges(*indices), kMembers) == indices, text);
  try {
    for (const SlurmTask& task : parse_squeue(text, {1, 7}, kMembers))
      LOWTIDE_CHECK(task.index < kMembers && (task.job == 1 || task.job == 7), task.name());
  } catch (const UserError&) {
  }
  return 0;
}
