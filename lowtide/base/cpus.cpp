#include "lowtide/base/cpus.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>

namespace lowtide {
namespace {

namespace fs = std::filesystem;

// The whole number at the start of a text ("4", "4,2" for nested levels, "8(x2)"), where it is above zero.
std::optional<int> leading_number(const char* text) {
  if (text == nullptr) return std::nullopt;
  int value = 0;
  const auto [end, error] = std::from_chars(text, text + std::strlen(text), value);
  return error == std::errc() && value > 0 ? std::optional(value) : std::nullopt;
}

int allowed_by_affinity() {
  // The kernel refuses a set that is smaller than its own.
  for (int cpus = 1024; cpus <= 1 << 20; cpus *= 2) {
    cpu_set_t* set = CPU_ALLOC(cpus);
    if (set == nullptr) break;
    const std::size_t bytes = CPU_ALLOC_SIZE(cpus);
    const int failed = sched_getaffinity(0, bytes, set);
    const int reason = errno, count = failed == 0 ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (failed == 0) return count;
    if (reason != EINVAL) break;
  }
  return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
}

// Quota over period of one group; infinite where it has none.
double cpus_of_group(const fs::path& group) {
  double quota = -1, period = 0;
  std::string word;
  if (std::ifstream file(group / "cpu.max"); file >> word >> period) {
    if (word != "max") quota = std::atof(word.c_str());
  } else {
    std::ifstream(group / "cpu.cfs_quota_us") >> quota;
    std::ifstream(group / "cpu.cfs_period_us") >> period;
  }
  return quota > 0 && period > 0 ? quota / period : HUGE_VAL;
}

// Where this process stands in the hierarchies: lines "0::/path" (version 2) and "4:cpu,cpuacct:/path".
int granted_to_this_process() {
  std::ifstream file("/proc/self/cgroup");
  int fewest = 0;
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path group = fs::path(line.substr(second + 1)).relative_path();
    const bool of_cpu = ("," + controllers + ",").find(",cpu,") != std::string::npos;
    if (!controllers.empty() && !of_cpu) continue;
    const fs::path mount = "/sys/fs/cgroup";
    const int granted = granted_cpus(controllers.empty() ? mount : mount / "cpu", group);
    if (granted > 0) fewest = fewest == 0 ? granted : std::min(fewest, granted);
  }
  return fewest;
}

}  // namespace

int granted_cpus(const fs::path& root, const fs::path& group) {
  double fewest = cpus_of_group(root);
  fs::path at = root;
  for (const fs::path& part : group) fewest = std::min(fewest, cpus_of_group(at /= part));
  return std::isinf(fewest) ? 0 : std::max(1, static_cast<int>(std::ceil(fewest)));
}

int usable_cpus() {
  if (const auto said = leading_number(std::getenv("OMP_NUM_THREADS"))) return *said;
  int cpus = allowed_by_affinity();
  if (const int granted = granted_to_this_process(); granted > 0) cpus = std::min(cpus, granted);
  if (const auto slurm = leading_number(std::getenv("SLURM_CPUS_PER_TASK"))) cpus = std::min(cpus, *slurm);
  return std::max(1, cpus);
}

}  // namespace lowtide
