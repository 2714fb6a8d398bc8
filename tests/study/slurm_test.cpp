#include "lowtide/study/slurm.h"

#include <gtest/gtest.h>

#include <fstream>

#include "lowtide/io/file.h"
#include "lowtide/study/command.h"
#include "lowtide/study/status.h"
#include "tests/io/scratch.h"
#include "tests/study/fake_slurm.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;
using Indices = std::vector<std::size_t>;

TEST(Slurm, IndicesAsRanges) {
  EXPECT_EQ(index_ranges({}), "");
  EXPECT_EQ(index_ranges({5}), "5");
  EXPECT_EQ(index_ranges({0, 1, 2, 3, 7, 9, 10}), "0-3,7,9-10");
  EXPECT_EQ(parse_index_ranges("0-3,7,9-10", 100), (Indices{0, 1, 2, 3, 7, 9, 10}));
  EXPECT_EQ(parse_index_ranges("2-3%2", 100), (Indices{2, 3}));
  EXPECT_EQ(parse_index_ranges("0-8:4", 100), (Indices{0, 4, 8}));
  EXPECT_EQ(parse_index_ranges("0-4000000", 2), (Indices{0, 1}));  // no more than there are
  EXPECT_EQ(parse_index_ranges("0-8:9223372036854775807", 5), (Indices{0}));
  for (const char* wrong : {"", "a", "1-", "-1", "1,,2", "1-2:0", "0x1f", "3-5:-1", "99999999999999999999"})
    EXPECT_EQ(parse_index_ranges(wrong, 100), std::nullopt) << wrong;
}

TEST(Slurm, TheScriptSaysWhatWasAsked) {
  const std::string script =
      slurm_script("/opt/lowtide", "/data/my study", {0, 1, 2, 5}, 4,
                   {.partition = "gpu", .time = "4:00:00", .gpus = 2, .array_limit = 8});
  EXPECT_TRUE(script.starts_with("#!/bin/bash\n"));
  EXPECT_TRUE(contains(
      script, "#SBATCH --job-name=\"my study\"\n", "#SBATCH --array=0-2,5%8\n", "#SBATCH --cpus-per-task=4\n",
      "#SBATCH --partition=gpu\n", "#SBATCH --time=4:00:00\n", "#SBATCH --gpus=2\n",
      "#SBATCH --output=\"/data/my study/slurm-%A_%a.out\"\n", "#SBATCH --requeue\n",
      "#SBATCH --signal=TERM@60\n", "#SBATCH --chdir=" + fs::current_path().string(),
      "srun /opt/lowtide study member '/data/my study' \"$SLURM_ARRAY_TASK_ID\"\n", "scontrol requeue"));
  const std::string plain = slurm_script("/opt/lowtide", "/data/100%/s", {3}, 0, {});
  EXPECT_TRUE(contains(plain, "#SBATCH --array=3\n", "--output=/data/100%%/s/slurm-%A_%a.out\n"));
  for (const char* unasked : {"partition", "time", "gpus", "cpus"})
    EXPECT_EQ(plain.find(std::string("#SBATCH --") + unasked), std::string::npos) << unasked;
}

TEST(Slurm, WhatItCannotBeToldIsRefused) {
  EXPECT_TRUE(
      contains(user_error([] { slurm_script("/l", "/s", {0}, 0, {.partition = "a\n#SBATCH --wrap=b"}); }),
               "partition is", "expected no quotes"));
}

// Of 22.05 as it printed it, and of newer versions as their documentation has it: numbers are objects, states lists.
TEST(Slurm, QueuesOfSeveralVersionsAreRead) {
  const std::string text = R"({"meta":{},"errors":[],"jobs":[
    {"job_id":2,"array_job_id":1,"array_task_id":0,"array_task_string":"","job_state":"RUNNING","state_reason":"None","nodes":"n1"},
    {"job_id":1,"array_job_id":1,"array_task_id":null,"array_task_string":"2-3,9%2","job_state":"PENDING","state_reason":"JobArrayTaskLimit","nodes":""},
    {"job_id":4,"array_job_id":1,"array_task_id":1,"array_task_string":"","job_state":"CANCELLED","state_reason":"None","nodes":""},
    {"job_id":7,"array_job_id":6,"array_task_id":1,"array_task_string":"","job_state":"RUNNING","state_reason":"None","nodes":"n2"},
    {"job_id":8,"array_job_id":0,"array_task_id":null,"array_task_string":"","job_state":"RUNNING","state_reason":"None","nodes":"n2"}
  ]})";
  const std::vector<SlurmTask> tasks = parse_squeue(text, {1}, 4);
  ASSERT_EQ(tasks.size(), 3u);  // not that which was cancelled, those of others, nor a tenth member
  EXPECT_EQ(tasks[0].name(), "1_0");
  EXPECT_EQ(tasks[0].nodes, "n1");
  EXPECT_EQ(tasks[2].index, 3u);
  EXPECT_EQ(tasks[2].reason, "JobArrayTaskLimit");
  const std::string newer = R"({"jobs":[{"array_job_id":{"set":true,"infinite":false,"number":1},
    "array_task_id":{"set":true,"infinite":false,"number":3},"job_state":["RUNNING","COMPLETING"],"state_reason":"None","nodes":"n1"},
    {"array_job_id":{"set":true,"infinite":false,"number":1},"array_task_id":{"set":false,"infinite":false,"number":0},
    "array_task_string":"0-1","job_state":["PENDING"],"state_reason":"Priority","nodes":""}]})";
  const std::vector<SlurmTask> others = parse_squeue(newer, {1}, 4);
  ASSERT_EQ(others.size(), 3u);
  EXPECT_EQ(others[0].index, 3u);
  EXPECT_EQ(others[0].state, "RUNNING");
  EXPECT_EQ(others[1].state, "PENDING");
  for (const char* wrong : {"", "{}", "[]", "{\"jobs\":[1]}", "{\"jobs\":[[]]}"})
    EXPECT_TRUE(contains(user_error([&] { parse_squeue(wrong, {1}, 4); }), "squeue --json")) << wrong;
}

TEST(Slurm, TheQueueTellsMoreOfTheMembers) {
  const auto member = [](MemberState state) {
    return MemberStatus{.name = "a", .state = state, .steps = 40};
  };
  std::vector<MemberStatus> members{member(MemberState::kDone),    member(MemberState::kSaved),
                                    member(MemberState::kWaiting), member(MemberState::kFailed),
                                    member(MemberState::kFailed),  member(MemberState::kWaiting)};
  SlurmQueue queue{.is_known = true};
  queue.tasks = {{.job = 7, .index = 1, .state = "PENDING", .reason = "BeginTime", .nodes = ""},
                 {.job = 7, .index = 2, .state = "RUNNING", .reason = "None", .nodes = "n1"},
                 {.job = 7, .index = 3, .state = "PENDING", .reason = "Priority", .nodes = ""}};
  const std::vector<MemberStatus> before = members;
  add_queue(members, {});
  EXPECT_EQ(status_text(members), status_text(before)) << "a queue that is not known tells nothing";
  add_queue(members, queue);
  EXPECT_EQ(members[0].note, "");
  EXPECT_EQ(members[1].state, MemberState::kSaved);
  EXPECT_EQ(members[1].note, "job 7_1 is queued (BeginTime)");
  EXPECT_EQ(members[2].state, MemberState::kRunning);
  EXPECT_EQ(members[2].note, "job 7_2 starts on n1");
  EXPECT_EQ(members[3].state, MemberState::kWaiting) << "it is tried again";
  EXPECT_EQ(members[4].state, MemberState::kFailed);
  EXPECT_EQ(members[5].note, "not in the queue: submit the study again");
}

TEST(Slurm, JobsAreThoseOfTheFile) {
  const ScratchFolder folder;
  EXPECT_TRUE(slurm_jobs(folder.path()).empty());
  EXPECT_EQ(ask_squeue(folder.path(), 3).problem, "") << "nobody is asked of a study that was not submitted";
  std::ofstream(folder / "slurm.jobs") << "7\n4711\n";
  EXPECT_EQ(slurm_jobs(folder.path()), (std::vector<std::int64_t>{7, 4711}));
  std::ofstream(folder / "slurm.jobs") << "seven\n";
  EXPECT_TRUE(contains(user_error([&] { slurm_jobs(folder.path()); }), "slurm.jobs", "damaged"));
}

TEST(Slurm, NothingIsSubmittedTwiceWhereTheQueueIsNotKnown) {
  const FakeSlurm slurm;
  const ScratchFolder folder;
  Study study;
  study.kind = Study::kSuite;
  study.schedules = {"CR", "static"};
  study.seeds = 1;
  study.recipe.data.dir = "data";
  study.recipe.training.steps = 40;
  complete(study);
  slurm.have("squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1");
  slurm.have("sbatch", "echo 7");
  EXPECT_EQ(submit_to_slurm(study, folder.path(), {})->members, 2u) << "the first time nobody is asked";
  EXPECT_TRUE(contains(user_error([&] { submit_to_slurm(study, folder.path(), {}); }),
                       "Unable to contact slurm controller; nothing is submitted"));
  EXPECT_EQ(slurm_jobs(folder.path()), std::vector<std::int64_t>{7});
  // As older ones, which know no --me.
  slurm.have("squeue", R"(for word; do [ "$word" = --me ] && exit 1; done
    echo '{"jobs":[{"array_job_id":7,"array_task_id":1,"job_state":"PENDING"}]}')");
  EXPECT_EQ(submit_to_slurm(study, folder.path(), {})->members, 1u);
}

TEST(Commands, GiveWhatTheyPrint) {
  const CommandEnd end = run_command({"sh", "-c", "echo out; echo error >&2; exit 3"});
  EXPECT_EQ(end.code, 3);
  EXPECT_EQ(end.out, "out\n");
  EXPECT_EQ(end.error, "error\n");
  EXPECT_EQ(run_command({"no-such-program"}).code, 127);
  EXPECT_EQ(run_command({"sleep", "60"}, std::chrono::seconds(0)).code, 128 + SIGKILL);
  // More than a pipe holds.
  EXPECT_EQ(run_command({"sh", "-c", "yes | head -c 1000000"}).out.size(), 1'000'000u);
}

TEST(Commands, WordsForAShell) {
  for (const char* text : {"plain", "", "a b", "it's", "$HOME", "a\"b", "*"})
    EXPECT_EQ(run_command({"sh", "-c", "printf %s " + shell_word(text)}).out, text);
}

}  // namespace
}  // namespace lowtide
