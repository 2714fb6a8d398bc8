#include "lowtide/ranks/environment.h"

#include <gtest/gtest.h>

#include <map>

#include "lowtide/base/error.h"

namespace lowtide {
namespace {

using Set = std::map<std::string, std::string>;

std::optional<RankEnvironment> environment_of(const Set& set) {
  return rank_environment([&](const char* name) -> std::optional<std::string> {
    const auto found = set.find(name);
    return found == set.end() ? std::nullopt : std::optional(found->second);
  });
}

void expect_refused(const Set& set, const std::string& message) {
  try {
    environment_of(set);
    FAIL() << "expected: " << message;
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
  }
}

const Set kTorchrun{{"RANK", "3"},
                    {"WORLD_SIZE", "8"},
                    {"LOCAL_RANK", "1"},
                    {"MASTER_ADDR", "node1"},
                    {"MASTER_PORT", "29500"}};

const Set kSrun{{"SLURM_PROCID", "2"},    {"SLURM_STEP_NUM_TASKS", "4"},
                {"SLURM_LOCALID", "0"},   {"SLURM_STEP_NODELIST", "node[07-09,12]"},
                {"SLURM_JOB_ID", "4711"}, {"SLURM_STEP_ID", "0"}};

const Set kMpirun{{"OMPI_COMM_WORLD_RANK", "1"},
                  {"OMPI_COMM_WORLD_SIZE", "2"},
                  {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                  {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                  {"PMIX_NAMESPACE", "3735093249"}};

Set with(Set set, const std::string& name, const std::string& value) {
  set[name] = value;
  return set;
}

Set without(Set set, const std::string& name) {
  set.erase(name);
  return set;
}

TEST(RankEnvironment, IsNoneWhereNobodyStartedSeveralProcesses) {
  EXPECT_FALSE(environment_of({}));
  EXPECT_FALSE(environment_of({{"RANK", "0"}, {"WORLD_SIZE", "1"}}));
  EXPECT_FALSE(environment_of(with(with(kSrun, "SLURM_STEP_NUM_TASKS", "1"), "SLURM_PROCID", "0")));
  // A batch script has these, and runs once.
  EXPECT_FALSE(environment_of({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "4711"}}));
}

TEST(RankEnvironment, IsThatOfTorchrun) {
  const auto found = environment_of(kTorchrun);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 3);
  EXPECT_EQ(found->size, 8);
  EXPECT_EQ(found->local_rank, 1);
  EXPECT_EQ(found->address, "node1");
  EXPECT_EQ(found->port, 29500);
  EXPECT_FALSE(found->is_local());
  EXPECT_EQ(found->meeting, "");
  const Set agent =
      with(with(kTorchrun, "TORCHELASTIC_USE_AGENT_STORE", "True"), "TORCHELASTIC_RESTART_COUNT", "2");
  EXPECT_EQ(environment_of(agent)->meeting, "lowtide/2");  // not where ranks met that failed
}

TEST(RankEnvironment, OfTorchrunWinsOverTheJobItIsIn) {
  Set both = kTorchrun;
  both.insert(kSrun.begin(), kSrun.end());
  EXPECT_EQ(environment_of(both)->size, 8);
}

TEST(RankEnvironment, OfSrunMeetsAtItsFirstNode) {
  const auto found = environment_of(kSrun);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 2);
  EXPECT_EQ(found->size, 4);
  EXPECT_EQ(found->address, "node07");
  EXPECT_EQ(environment_of(with(kSrun, "SLURM_STEP_NODELIST", "a,b"))->address, "a");
  EXPECT_EQ(environment_of(with(kSrun, "SLURM_STEP_NODELIST", "gpu1"))->address, "gpu1");
  const auto first_of = [](const char* nodes) {
    return environment_of(with(kSrun, "SLURM_STEP_NODELIST", nodes))->address;
  };
  EXPECT_EQ(first_of("n[1-3]-ib"), "n1-ib");
  EXPECT_EQ(first_of("n[5,7]-ib,m1"), "n5-ib");
  EXPECT_EQ(first_of("r[1-2]n[03-04]"), "r1n03");
  EXPECT_EQ(environment_of(with(kSrun, "MASTER_ADDR", "10.0.0.1"))->address, "10.0.0.1");
  EXPECT_EQ(environment_of(with(kSrun, "MASTER_PORT", "1234"))->port, 1234);
}

TEST(RankEnvironment, HasOnePortForOneJob) {
  const int port = environment_of(kSrun)->port;
  EXPECT_EQ(environment_of(with(kSrun, "SLURM_PROCID", "0"))->port, port);
  EXPECT_NE(environment_of(with(kSrun, "SLURM_STEP_ID", "1"))->port, port);
  EXPECT_GE(port, 20000);
  EXPECT_LT(port, 32768);
}

TEST(RankEnvironment, OfMpirunMeetsOnItsMachineOrWhereItIsTold) {
  EXPECT_EQ(environment_of(kMpirun)->address, "127.0.0.1");
  const Set two_machines = with(kMpirun, "OMPI_COMM_WORLD_LOCAL_SIZE", "1");
  expect_refused(two_machines, "MASTER_ADDR does not say which has rank 0");
  EXPECT_EQ(environment_of(with(two_machines, "MASTER_ADDR", "node1"))->address, "node1");
}

TEST(RankEnvironment, NamesWhatIsWrong) {
  expect_refused(without(kTorchrun, "WORLD_SIZE"), "WORLD_SIZE is not set, though others of torchrun's");
  expect_refused(without(kTorchrun, "RANK"), "RANK is not set");
  expect_refused(without(kTorchrun, "MASTER_ADDR"), "MASTER_ADDR is not set");
  expect_refused(without(kTorchrun, "MASTER_PORT"), "MASTER_PORT is not set");
  expect_refused(with(kTorchrun, "RANK", "8"), "RANK is '8'; expected a number from 0 to 7");
  expect_refused(with(kTorchrun, "RANK", "-1"), "RANK is '-1'");
  expect_refused(with(kTorchrun, "RANK", "1x"), "RANK is '1x'");
  expect_refused(with(kTorchrun, "WORLD_SIZE", "0"), "WORLD_SIZE is '0'; expected a number from 1");
  expect_refused(with(kTorchrun, "MASTER_PORT", "99999"),
                 "MASTER_PORT is '99999'; expected a number from 1 to 65535");
  expect_refused(without(kMpirun, "OMPI_COMM_WORLD_SIZE"), "OMPI_COMM_WORLD_SIZE is not set");
  expect_refused(without(kSrun, "SLURM_PROCID"), "SLURM_PROCID is not set, though others of srun's");
}

// As MPICH's mpirun starts them: each would train by itself, in one folder.
TEST(RankEnvironment, OfALauncherThatIsNotKnownIsNamed) {
  expect_refused({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}, "PMI_RANK is set, by a launcher");
  expect_refused({{"PMIX_RANK", "0"}}, "PMIX_RANK is set");
  EXPECT_FALSE(environment_of({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}));
  EXPECT_EQ(environment_of(with(kSrun, "PMI_RANK", "2"))->size, 4);
  EXPECT_EQ(environment_of(with(kMpirun, "PMIX_RANK", "1"))->size, 2);
}

TEST(RankEnvironment, ARankHasAGpuOfItsOwn) {
  const RankEnvironment third{.size = 4, .local_rank = 2, .address = "node1"};
  EXPECT_EQ(gpu_of(third, 4), 2);
  EXPECT_EQ(gpu_of(third, 1), 0);  // as SLURM's --gpus-per-task shows each one its own
  EXPECT_EQ(gpu_of(third, 2), std::nullopt);
  EXPECT_EQ(gpu_of(third, 0), std::nullopt);
  EXPECT_EQ(gpu_of({.size = 2, .local_rank = 1, .folder = "here"}, 1), std::nullopt);  // rank 0 has it
}

}  // namespace
}  // namespace lowtide
