#pragma once

#include <filesystem>

namespace lowtide {

// How many threads this process should use: what OMP_NUM_THREADS says; else the fewest of the CPUs that it may run on
// (taskset, cpusets, a container's), the CPUs' worth of time that its control groups grant, and SLURM_CPUS_PER_TASK.
// At least one.
int usable_cpus();

// CPUs' worth of time that the control groups above `group` and itself grant, rounded up; 0 where there is no limit. Version 2
// (`cpu.max`) and version 1 (`cpu.cfs_quota_us`) are known; `root` is where the hierarchy is mounted.
int granted_cpus(const std::filesystem::path& root, const std::filesystem::path& group);

}  // namespace lowtide
