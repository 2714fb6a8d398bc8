#include "lowtide/ranks/environment.h"

#include <fmt/format.h>

#include <array>
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

// The variables by which a launcher tells a process which of several it is.
struct RankNames {
  const char *rank, *size, *local_rank;
};
constexpr RankNames kTorchrun{"RANK", "WORLD_SIZE", "LOCAL_RANK"};
constexpr RankNames kMpirun{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"};
constexpr const char* kMpirunLocalSize = "OMPI_COMM_WORLD_LOCAL_SIZE";
constexpr RankNames kSrun{"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"};
constexpr const char* kOtherSize = "PMI_SIZE";
// MPICH's mpirun and others set these, which do not say how the ranks find each other.
constexpr std::array kOthers{"PMI_RANK", kOtherSize, "PMIX_RANK"};

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

  RankEnvironment ranks(const RankNames& names) const {
    RankEnvironment environment;
    environment.size = number(names.size, 1, static_cast<int>(kMostShards));
    environment.rank = number(names.rank, 0, environment.size - 1);
    if (has(names.local_rank)) environment.local_rank = number(names.local_rank, 0, environment.size - 1);
    return environment;
  }

 private:
  std::string name_;
  const Variables& get_;
};

RankEnvironment from_torchrun(const Variables& variables) {
  const Launcher launcher("torchrun's variables", variables);
  RankEnvironment environment = launcher.ranks(kTorchrun);
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
  RankEnvironment environment = launcher.ranks(kMpirun);
  if (environment.size == 1) return environment;
  const int here = launcher.number(kMpirunLocalSize, 1, environment.size);
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

void expect_no_other_launcher(const Variables& variables) {
  if (variables(kOtherSize) == "1") return;
  for (const char* variable : kOthers) {
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
  RankEnvironment environment = launcher.ranks(kSrun);
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
  if (variables(kTorchrun.rank) || variables(kTorchrun.size)) {
    found = from_torchrun(variables);
  } else if (variables(kMpirun.rank) || variables(kMpirun.size)) {
    found = from_mpirun(variables);
  } else if (variables(kSrun.size)) {
    found = from_srun(variables);
  } else {
    expect_no_other_launcher(variables);
  }
  return found && found->size > 1 ? found : std::nullopt;
}

void forget_launcher() {
  for (const RankNames& names : {kTorchrun, kMpirun}) {
    for (const char* variable : {names.rank, names.size, names.local_rank}) unsetenv(variable);
  }
  unsetenv(kMpirunLocalSize);
  unsetenv(kSrun.size);  // by which srun is known; its other two tell of the job's task, which this stays
  for (const char* variable : kOthers) unsetenv(variable);
}

std::optional<RankEnvironment> rank_environment() {
  return rank_environment([](const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
  });
}

}  // namespace lowtide
