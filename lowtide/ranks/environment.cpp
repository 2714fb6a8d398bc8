#include "lowtide/ranks/environment.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <cstdlib>

#include "lowtide/base/error.h"
#include "lowtide/base/shards.h"

namespace lowtide {
namespace {

// Ports for jobs that say none: above those that services have, below those that Linux gives to connections.
constexpr int kFirstPort = 20000, kPorts = 12000;

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

// The first of node[3-5,9],other: node3.
std::string first_host(const std::string& list) {
  const std::size_t bracket = list.find_first_of("[,");
  if (bracket == std::string::npos || list[bracket] == ',') return list.substr(0, bracket);
  const std::size_t begin = bracket + 1;
  return list.substr(0, bracket) + list.substr(begin, list.find_first_of("-,]", begin) - begin);
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

// The batch script of a SLURM job has some of a step's variables, but not the number of its tasks.
std::optional<RankEnvironment> rank_environment(const Variables& variables) {
  std::optional<RankEnvironment> found;
  if (variables("RANK") || variables("WORLD_SIZE")) {
    found = from_torchrun(variables);
  } else if (variables("OMPI_COMM_WORLD_SIZE")) {
    found = from_mpirun(variables);
  } else if (variables("SLURM_STEP_NUM_TASKS")) {
    found = from_srun(variables);
  }
  return found && found->size > 1 ? found : std::nullopt;
}

std::optional<RankEnvironment> rank_environment() {
  return rank_environment([](const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
  });
}

}  // namespace lowtide
