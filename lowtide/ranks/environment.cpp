#include "lowtide/ranks/environment.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <fstream>

#include "lowtide/base/error.h"
#include "lowtide/base/shards.h"
#include "lowtide/io/file.h"

namespace lowtide {
namespace {

// Ports for jobs that say none: above those that services have, below those that Linux gives to connections.
constexpr int kFirstPort = 20000, kPorts = 12000;

std::string mark_of(const RankEnvironment& environment) { return environment.folder + "/ended-by-a-signal"; }

// The variables of one launcher, whose name is for messages.
class Launcher {
 public:
  Launcher(std::string name, const Variables& variables) : name_(std::move(name)), get_(variables) {}

  std::string text(const char* variable) const {
    const std::optional<std::string> value = get_(variable);
    if (!value || value->empty())
      throw UserError(
          fmt::format("{} is not set, though others of {} are; set it, or unset them", variable, name_));
    return *value;
  }

  int number(const char* variable, int low, int high) const {
    const std::string value = text(variable);
    int number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() || number < low || number > high)
      throw UserError(
          fmt::format("{} is '{}'; expected a number from {} to {} ({})", variable, value, low, high, name_));
    return number;
  }

  bool has(const char* variable) const { return get_(variable).has_value(); }

  // One port for one job: what names the job chooses it.
  int port(const std::string& job) const {
    if (has("MASTER_PORT")) return number("MASTER_PORT", 1, 65535);
    std::uint32_t hash = 2166136261u;  // FNV-1a
    for (const char c : job) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
    return kFirstPort + static_cast<int>(hash % kPorts);
  }

  RankEnvironment ranks(const char* rank, const char* size, const char* local_rank) const {
    RankEnvironment environment;
    environment.size = number(size, 1, static_cast<int>(kMostShards));
    environment.rank = number(rank, 0, environment.size - 1);
    if (has(local_rank)) environment.local_rank = number(local_rank, 0, environment.size - 1);
    return environment;
  }

 private:
  std::string name_;
  const Variables& get_;
};

RankEnvironment from_torchrun(const Variables& variables) {
  const Launcher launcher("torchrun's variables", variables);
  RankEnvironment environment = launcher.ranks("RANK", "WORLD_SIZE", "LOCAL_RANK");
  if (environment.size == 1) return environment;
  environment.address = launcher.text("MASTER_ADDR");
  environment.port = launcher.number("MASTER_PORT", 1, 65535);
  // torchrun's agent, which starts failed ranks again, listens at the port itself.
  if (variables("TORCHELASTIC_USE_AGENT_STORE") == "True")
    environment.meeting = fmt::format("lowtide/{}", variables("TORCHELASTIC_RESTART_COUNT").value_or("0"));
  return environment;
}

RankEnvironment from_mpirun(const Variables& variables) {
  const Launcher launcher("mpirun's variables", variables);
  RankEnvironment environment =
      launcher.ranks("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK");
  if (environment.size == 1) return environment;
  const int here = launcher.number("OMPI_COMM_WORLD_LOCAL_SIZE", 1, environment.size);
  if (!launcher.has("MASTER_ADDR") && here < environment.size)
    throw UserError(
        "mpirun started ranks on several machines, and MASTER_ADDR does not say which has rank 0: mpirun -x "
        "MASTER_ADDR=HOST");
  environment.address = launcher.has("MASTER_ADDR") ? launcher.text("MASTER_ADDR") : "127.0.0.1";
  environment.port = launcher.port(variables("PMIX_NAMESPACE").value_or("mpirun"));
  return environment;
}

// The first of rack[1-2]node[3-5,9]-ib,other: rack1node3-ib.
std::string first_host(const std::string& list) {
  std::string host;
  for (std::size_t at = 0; at < list.size() && list[at] != ',';) {
    if (list[at] != '[') {
      host += list[at++];
      continue;
    }
    const std::size_t begin = at + 1;
    host += list.substr(begin, list.find_first_of("-,]", begin) - begin);
    const std::size_t end = list.find(']', begin);
    at = end == std::string::npos ? list.size() : end + 1;
  }
  return host;
}

// MPICH's mpirun and others set these, which do not say how the ranks find each other.
void expect_no_other_launcher(const Variables& variables) {
  if (variables("PMI_SIZE") == "1") return;
  for (const char* variable : {"PMI_RANK", "PMI_SIZE", "PMIX_RANK"}) {
    if (!variables(variable)) continue;
    throw UserError(fmt::format(
        "{} is set, by a launcher of processes that is not known here; start the ranks by torchrun, Open "
        "MPI's "
        "mpirun or srun, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; to train alone, unset it",
        variable));
  }
}

RankEnvironment from_srun(const Variables& variables) {
  const Launcher launcher("srun's variables", variables);
  RankEnvironment environment = launcher.ranks("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID");
  if (environment.size == 1) return environment;
  environment.address = launcher.has("MASTER_ADDR") ? launcher.text("MASTER_ADDR")
                                                    : first_host(launcher.text("SLURM_STEP_NODELIST"));
  environment.port = launcher.port(launcher.text("SLURM_JOB_ID") + "." + launcher.text("SLURM_STEP_ID"));
  return environment;
}

}  // namespace

void RankEnvironment::mark() const { const std::ofstream file(mark_of(*this)); }

bool RankEnvironment::is_marked() const { return is_local() && file_exists(mark_of(*this)); }

std::optional<int> gpu_of(const RankEnvironment& environment, int gpus) {
  if (gpus == 1 && !environment.is_local()) return 0;
  return environment.local_rank < gpus ? std::optional(environment.local_rank) : std::nullopt;
}

// The batch script of a SLURM job has some of a step's variables, but not the number of its tasks.
std::optional<RankEnvironment> rank_environment(const Variables& variables) {
  std::optional<RankEnvironment> found;
  if (variables("RANK") || variables("WORLD_SIZE")) {
    found = from_torchrun(variables);
  } else if (variables("OMPI_COMM_WORLD_RANK") || variables("OMPI_COMM_WORLD_SIZE")) {
    found = from_mpirun(variables);
  } else if (variables("SLURM_STEP_NUM_TASKS")) {
    found = from_srun(variables);
  } else {
    expect_no_other_launcher(variables);
  }
  return found && found->size > 1 ? found : std::nullopt;
}

void forget_launcher() {
  for (const char* variable :
       {"RANK", "WORLD_SIZE", "LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_STEP_NUM_TASKS", "PMI_RANK",
        "PMI_SIZE", "PMIX_RANK"})
    unsetenv(variable);
}

std::optional<RankEnvironment> rank_environment() {
  return rank_environment([](const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
  });
}

}  // namespace lowtide
