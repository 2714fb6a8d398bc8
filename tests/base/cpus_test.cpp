#include "lowtide/base/cpus.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <cstdlib>
#include <fstream>
#include <thread>

#include "tests/io/scratch.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

// Without the variables, whatever the test was started with.
class UsableCpus : public testing::Test {
 protected:
  UsableCpus() { clear(); }
  ~UsableCpus() override { clear(); }

 private:
  static void clear() {
    unsetenv("OMP_NUM_THREADS");
    unsetenv("SLURM_CPUS_PER_TASK");
  }
};

TEST_F(UsableCpus, AreThoseOfTheThreadsAffinity) {
  const int before = usable_cpus();
  EXPECT_GE(before, 1);
  int narrowed = 0;
  std::thread([&] {  // affinity is a thread's own
    cpu_set_t all, one;
    sched_getaffinity(0, sizeof(all), &all);
    CPU_ZERO(&one);
    for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (!CPU_ISSET(cpu, &all)) continue;
      CPU_SET(cpu, &one);
      break;
    }
    sched_setaffinity(0, sizeof(one), &one);
    narrowed = usable_cpus();
  })
      .join();
  EXPECT_EQ(narrowed, 1);
}

TEST_F(UsableCpus, AreWhatOpenMpIsTold) {
  setenv("OMP_NUM_THREADS", "7", 1);
  EXPECT_EQ(usable_cpus(), 7);
  setenv("OMP_NUM_THREADS", "3,2", 1);  // of nested levels the first counts
  EXPECT_EQ(usable_cpus(), 3);
  const int otherwise = (unsetenv("OMP_NUM_THREADS"), usable_cpus());
  for (const char* nonsense : {"", "0", "-4", "many"}) {
    setenv("OMP_NUM_THREADS", nonsense, 1);
    EXPECT_EQ(usable_cpus(), otherwise) << nonsense;
  }
}

TEST_F(UsableCpus, AreAtMostWhatSlurmGivesATask) {
  const int before = usable_cpus();
  setenv("SLURM_CPUS_PER_TASK", "1", 1);
  EXPECT_EQ(usable_cpus(), 1);
  setenv("SLURM_CPUS_PER_TASK", "100000", 1);
  EXPECT_EQ(usable_cpus(), before);
}

TEST(GrantedCpus, AreQuotaOverPeriodRoundedUp) {
  const ScratchFolder root;
  write(root / "job/cpu.max", "150000 100000\n");
  EXPECT_EQ(granted_cpus(root.path(), "job"), 2);
  write(root / "job/cpu.max", "20000 100000\n");
  EXPECT_EQ(granted_cpus(root.path(), "job"), 1);
}

TEST(GrantedCpus, AreTheFewestOfAllGroupsAbove) {
  const ScratchFolder root;
  write(root / "cpu.max", "max 100000\n");
  write(root / "pod/cpu.max", "400000 100000\n");
  write(root / "pod/task/cpu.max", "max 100000\n");
  EXPECT_EQ(granted_cpus(root.path(), "pod/task"), 4);
  write(root / "pod/task/cpu.max", "300000 100000\n");
  EXPECT_EQ(granted_cpus(root.path(), "pod/task"), 3);
}

TEST(GrantedCpus, AreReadFromTheFirstVersionsFilesToo) {
  const ScratchFolder root;
  write(root / "job/cpu.cfs_quota_us", "250000\n");
  write(root / "job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(granted_cpus(root.path(), "job"), 3);
  write(root / "job/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(granted_cpus(root.path(), "job"), 0);
}

TEST(GrantedCpus, AreUnlimitedWhereNothingSaysSo) {
  const ScratchFolder root;
  EXPECT_EQ(granted_cpus(root.path(), "no/such/group"), 0);
  write(root / "job/cpu.max", "nonsense\n");
  EXPECT_EQ(granted_cpus(root.path(), "job"), 0);
}

}  // namespace
}  // namespace lowtide
