#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

namespace lowtide {

// What a process that was started as one of several knows of itself and of how to find the others.
struct RankEnvironment {
  int rank = 0;
  int size = 1;
  int local_rank = 0;     // among those of its machine: which GPU is its own
  std::string address{};  // of rank 0; empty: all were started by this program, and meet in `folder`
  int port = 0;
  std::string folder{};
  std::string
      meeting{};  // under this name, in a store that the launcher keeps at that address; empty: rank 0 keeps one

  std::chrono::seconds patience{300};  // for the others to come
  bool saves = true;                   // checkpoints: who fails says that the last one is whole

  bool is_local() const { return address.empty(); }

  // For the end of a line that tells of a failure.
  std::string what_is_left(const char* before) const {
    return saves ? std::string(before) + "the last checkpoint is whole" : "";
  }

  // Who started local ranks marks in their folder that one of them was ended by a signal, and tells people of it.
  void mark() const;
  bool is_marked() const;
};

// Which of so many GPUs that a rank sees is its own: that of its local rank; the only one, where a launcher shows each rank one.
// Nothing where there are too few.
std::optional<int> gpu_of(const RankEnvironment& environment, int gpus);

using Variables = std::function<std::optional<std::string>(const char* name)>;

// What torchrun (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT), Open MPI's mpirun (OMPI_COMM_WORLD_…) or SLURM's
// srun say, in this order; nothing where none of them says that there is more than one process. The last two are helped by
// MASTER_ADDR and MASTER_PORT where those are set. UserError for variables that cannot be.
std::optional<RankEnvironment> rank_environment(const Variables& variables);

// The process's own.
std::optional<RankEnvironment> rank_environment();

// From now on this process and those that it starts are nobody's ranks, whoever started it. Which job of a scheduler it is stays.
void forget_launcher();

}  // namespace lowtide
