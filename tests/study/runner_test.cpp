#include "lowtide/study/runner.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "lowtide/io/file.h"
#include "lowtide/study/folder.h"
#include "lowtide/study/status.h"
#include "tests/io/scratch.h"
#include "tests/study/fake_runs.h"
#include "tests/study/fake_trainer.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

class Runner : public testing::Test {
 protected:
  RunnerEnd run(const std::vector<std::string>& names, int jobs = 1, int threads = 4) {
    return run(names, jobs, threads, std::nullopt);
  }

  RunnerEnd run(const std::vector<std::string>& names, int jobs, int threads,
                std::optional<std::size_t> only) {
    members_.clear();
    for (const std::string& name : names) members_.push_back(fake_member(name));
    return run_members(members_, folder_.path(),
                       {.program = trainer_,
                        .jobs = jobs,
                        .threads = threads,
                        .say = [&](const std::string& line) { said_ += line + "\n"; },
                        .only = only,
                        .vmstat = folder_ / "vmstat"});
  }

  // Runs, and sends this process the signal once all of `ready` wait.
  RunnerEnd run_and_signal(const std::vector<std::string>& names, int jobs, int signal,
                           const std::vector<std::string>& ready,
                           std::optional<std::size_t> only = std::nullopt) {
    std::thread sender([&] {
      EXPECT_TRUE(comes_true([&] {
        return std::all_of(ready.begin(), ready.end(),
                           [&](const std::string& name) { return fs::exists(folder_ / (name + "/ready")); });
      }));
      kill(getpid(), signal);
    });
    const RunnerEnd end = run(names, jobs, 4, only);
    sender.join();
    return end;
  }

  std::string text(const std::string& name) const { return read_text_file(folder_ / name); }
  std::vector<MemberStatus> status() const { return read_status(members_, folder_.path()); }

  const ScratchFolder folder_, elsewhere_;
  const fs::path trainer_ = write_fake_trainer(elsewhere_ / "trainer");
  std::vector<Member> members_;
  std::string said_;
};

TEST_F(Runner, TheMemoryOfAGpuIsSharedAmongTheJobs) {
  std::vector<Member> members{fake_member("whole"), fake_member("half"), fake_member("of-a-cpu")};
  members[0].recipe.running.device = members[1].recipe.running.device = "cuda";
  members[1].recipe.running.gpu_memory = 0.5;
  EXPECT_TRUE(
      run_members(members, folder_.path(), {.program = trainer_, .jobs = 4, .threads = 4}).failed.empty());
  const std::string calls = text("calls");
  const std::string all = " threads=1 train --recipe --out --resume";
  EXPECT_TRUE(contains(calls, "whole" + all + " --gpu-memory 0.25\n", "half" + all + " --gpu-memory 0.125\n",
                       "of-a-cpu" + all + "\n"))
      << calls;
  // One by itself has what its recipe says.
  members = {fake_member("alone")};
  members[0].recipe.running.device = "cuda";
  EXPECT_TRUE(run_members(members, folder_.path(), {.program = trainer_, .threads = 4}).failed.empty());
  EXPECT_TRUE(contains(text("calls"), "alone threads=4 train --recipe --out --resume\n"));
}

// Its metrics tell no bits, which the member that has them says; one that fails leaves the others nothing.
TEST_F(Runner, MembersWithTheBitsOfOthersWaitForThem) {
  std::vector<Member> members;
  for (const char* name : {"replay", "early", "shuffle", "late-source", "fails-source", "of-none"})
    members.push_back(fake_member(name));
  members[3].name = "source";
  members[0].bits_of = BitsOf{"source", false};
  members[2].bits_of = BitsOf{"source", true};
  members[5].bits_of = BitsOf{"fails-source", false};
  write_atomically(
      elsewhere_ / "bits",
      std::string_view("{\"step\":30,\"bits\":5,\"seconds\":1}\n{\"step\":40,\"bits\":8,\"seconds\":1}\n"));
  std::ofstream(elsewhere_ / "with_bits")
      << "#!/bin/sh\n"
      << trainer_.string() << " \"$@\"\ncode=$?\n"
      << "[ -f \"$5/result.json\" ] && cp " << (elsewhere_ / "bits").string()
      << " \"$5/metrics.jsonl\"\nexit $code\n";
  fs::permissions(elsewhere_ / "with_bits", fs::perms::owner_all);
  const RunnerEnd end =
      run_members(members, folder_.path(), {.program = elsewhere_ / "with_bits", .jobs = 2});
  ASSERT_EQ(end.failed.size(), 2u);
  EXPECT_EQ(end.failed[1].name, "of-none");
  EXPECT_TRUE(contains(end.failed[1].reason, "the bits of fails-source, which has no result yet"));
  const std::string calls = text("calls");
  EXPECT_LT(calls.find("source "), calls.find("replay "));
  EXPECT_LT(calls.find("source "), calls.find("shuffle "));
  EXPECT_TRUE(contains(text("replay/recipe.toml"), "table 5x30 8x10 grad=8"));
  EXPECT_TRUE(contains(text("replay/recipe.toml"), "eval-bits = 8"));
  EXPECT_FALSE(contains(text("shuffle/recipe.toml"), "table 5x30 8x10 grad=8"));
  EXPECT_TRUE(contains(text("shuffle/recipe.toml"), "schedule = \"table "));
}

TEST_F(Runner, TrainsEveryMemberOnce) {
  EXPECT_TRUE(run({"a", "b"}).failed.empty());
  EXPECT_EQ(text("calls"),
            "a threads=4 train --recipe --out --resume\nb threads=4 train --recipe --out --resume\n");
  EXPECT_TRUE(contains(said_, "[1/2] a starts",
                       "[2/2] b done: accuracy 50.00 %, cost 0.0400 (actual), 2 s; left 0 s"));
  EXPECT_TRUE(contains(text("a/recipe.toml"), "steps = 40"));
  EXPECT_TRUE(run({"a", "b"}).failed.empty());
  EXPECT_EQ(std::count(said_.begin(), said_.end(), '\n'), 4) << "finished ones are left alone: " << said_;
}

TEST_F(Runner, ThreadsAreSharedAmongTheJobs) {
  run_and_signal({"waits-a", "waits-b", "waits-c"}, 3, SIGTERM, {"waits-a", "waits-b", "waits-c"});
  const std::string calls = text("calls");
  EXPECT_TRUE(contains(calls, "waits-a threads=2", "waits-b threads=1", "waits-c threads=1"));  // four in all
}

// Of nine, two jobs have five and four.
TEST_F(Runner, ThreadsAreSharedAmongTheRanksOfAJobToo) {
  std::vector<Member> members{fake_member("alone"), fake_member("two-ranks"), fake_member("one-thread")};
  for (const std::size_t member : {1, 2}) members[member].recipe.running.ranks = 2;
  const auto run_with = [&](int jobs, int threads) {
    const RunnerEnd end =
        run_members(members, folder_.path(), {.program = trainer_, .jobs = jobs, .threads = threads});
    EXPECT_TRUE(end.failed.empty());
  };
  const Member last = members.back();
  members.pop_back();
  run_with(2, 9);
  members = {last};
  run_with(1, 1);
  const std::string calls = text("calls");
  EXPECT_TRUE(contains(calls, "alone threads=5", "two-ranks threads=2", "one-thread threads=1")) << calls;
}

TEST_F(Runner, AFailureIsNotedAndTheRestGoOn) {
  const RunnerEnd end = run({"fails", "a", "silent", "dies", "b"}, 2);
  ASSERT_EQ(end.failed.size(), 3u);
  std::map<std::string, std::string> reasons;
  for (const FailedMember& failed : end.failed) reasons[failed.name] = failed.reason;
  EXPECT_EQ(reasons["fails"], "lowtide: no such data; exit code 2");
  EXPECT_EQ(reasons["silent"], "it printed nothing; it ended without a result");
  EXPECT_EQ(reasons["dies"], "killed by SIGKILL; its last line: about to die");
  EXPECT_EQ(text("fails/train.log"), "reading\nlowtide: no such data\n");
  EXPECT_TRUE(fs::exists(folder_ / "a/result.json"));
  EXPECT_TRUE(fs::exists(folder_ / "b/result.json"));
  EXPECT_EQ(status()[0].state, MemberState::kFailed);
  EXPECT_EQ(status()[0].note, "lowtide: no such data; exit code 2");
}

TEST_F(Runner, WhatEndedAMemberIsNamed) {
  std::ofstream(folder_ / "vmstat") << "nr_free_pages 9\noom_kill 2\n";
  EXPECT_EQ(run({"dies"}).failed.at(0).reason, "killed by SIGKILL; its last line: about to die");
  EXPECT_EQ(run({"told"}).failed.at(0).reason, "stopped at step 30; stopped by SIGTERM, after it saved");
  EXPECT_TRUE(contains(run({"hungry"}).failed.at(0).reason, "killed by SIGKILL, out of memory",
                       "fewer --jobs", "its last line: taking all"));
  EXPECT_TRUE(contains(status_text(status()), "failed", "out of memory"));
}

TEST_F(Runner, AFailureIsTriedAgainByTheNextCommand) {
  ASSERT_EQ(run({"fails"}).failed.size(), 1u);
  ASSERT_TRUE(fs::exists(folder_ / "fails/failed.txt"));
  std::ofstream(trainer_) << "#!/bin/sh\nexit 9\n";
  EXPECT_EQ(run({"fails"}).failed.at(0).reason, "it printed nothing; exit code 9");
}

TEST_F(Runner, SigtermIsPassedOnAndTheNextCommandGoesOn) {
  const RunnerEnd stopped =
      run_and_signal({"a", "waits-b", "late-c", "d"}, 2, SIGTERM, {"waits-b", "late-c"});
  EXPECT_EQ(stopped.signal, SIGTERM);
  EXPECT_TRUE(stopped.failed.empty());
  EXPECT_TRUE(fs::exists(folder_ / "a/result.json"));
  EXPECT_TRUE(contains(text("waits-b/train.log"), "saved"));
  EXPECT_TRUE(contains(text("late-c/train.log"), "saved"));  // it was waited for
  EXPECT_FALSE(fs::exists(folder_ / "d"));                   // nothing new is started
  const std::vector<MemberStatus> after = status();
  EXPECT_EQ(after[0].state, MemberState::kDone);
  EXPECT_EQ(after[1].state, MemberState::kSaved);
  EXPECT_EQ(after[1].step, 30);  // where it will go on: its checkpoint
  EXPECT_EQ(after[3].state, MemberState::kWaiting);
  const RunnerEnd end = run({"a", "waits-b", "late-c", "d"}, 2);
  EXPECT_EQ(end.signal, 0);
  EXPECT_TRUE(end.failed.empty());
  EXPECT_TRUE(contains(said_, "waits-b goes on", "late-c goes on", "d starts"));
  for (const MemberStatus& member : status()) EXPECT_EQ(member.state, MemberState::kDone) << member.name;
}

TEST_F(Runner, OneThatAnotherProcessTrainsIsLeftToIt) {
  make_folders(folder_ / "a");
  const Lease held = take_run({folder_ / "a"});
  const RunnerEnd end = run({"a", "b"});
  EXPECT_TRUE(end.failed.empty());
  ASSERT_EQ(end.elsewhere.size(), 1u);
  EXPECT_EQ(end.elsewhere[0].name, "a");
  EXPECT_TRUE(contains(said_, "[1/2] a is trained elsewhere: process " + std::to_string(getpid()) + " on "));
  EXPECT_FALSE(fs::exists(folder_ / "a/failed.txt"));
  EXPECT_TRUE(fs::exists(folder_ / "b/result.json"));
}

// A process on another machine: whether it lives is for training to find out, which refuses.
TEST_F(Runner, OneThatIsRefusedForALeaseHasNotFailed) {
  const LeaseHolder other{
      .boot = "another", .pid_namespace = "pid:[1]", .pid = 812, .host = "node7", .job = "4711_3"};
  make_folders(folder_ / "fails");
  std::ofstream(folder_ / "fails/run.lease") << to_text(other);
  const RunnerEnd end = run({"fails"});
  EXPECT_TRUE(end.failed.empty());
  ASSERT_EQ(end.elsewhere.size(), 1u);
  EXPECT_EQ(end.elsewhere[0].writer, "process 812 on node7, job 4711_3");
}

// Of a machine whose clock is an hour behind; and by the time that this process looks, of nobody.
TEST_F(Runner, OneThatIsRefusedHasNotFailedWhateverTheClocksSay) {
  make_folders(folder_ / "refused");
  std::ofstream(folder_ / "refused/run.lease")
      << to_text(LeaseHolder{.boot = "another", .pid_namespace = "pid:[1]", .pid = 812, .host = "node7"});
  fs::last_write_time(folder_ / "refused/run.lease",
                      fs::file_time_type::clock::now() - std::chrono::hours(1));
  const RunnerEnd end = run({"refused", "refused-too"});
  EXPECT_TRUE(end.failed.empty());
  ASSERT_EQ(end.elsewhere.size(), 2u);
  EXPECT_EQ(end.elsewhere[0].writer, "process 812 on node7");
  EXPECT_FALSE(fs::exists(folder_ / "refused/failed.txt"));
}

TEST_F(Runner, AScriptThatAnotherProcessRunsIsLeftToIt) {
  members_ = {fake_member("script")};
  members_[0].command = "touch {out}/ran # {schedule} {seed}";
  const MemberPaths place(folder_.path(), members_[0]);
  make_folders(place.run.folder);
  {
    const Lease held(place.lease());
    EXPECT_EQ(status()[0].state, MemberState::kRunning);
    const RunnerEnd end = run_members(members_, folder_.path(), {});
    ASSERT_EQ(end.elsewhere.size(), 1u);
    EXPECT_TRUE(contains(end.elsewhere[0].writer, "process " + std::to_string(getpid()) + " on "));
    EXPECT_FALSE(fs::exists(place.run.folder / "ran"));
  }
  run_members(members_, folder_.path(), {});
  EXPECT_TRUE(fs::exists(place.run.folder / "ran"));
  EXPECT_FALSE(fs::exists(place.lease())) << "it is let go of";
}

TEST_F(Runner, OneMemberAlone) {
  members_ = {fake_member("a"), fake_member("b"), fake_member("c")};
  run_members(members_, folder_.path(), {.program = trainer_, .only = 1});
  EXPECT_FALSE(fs::exists(folder_ / "a"));
  EXPECT_TRUE(fs::exists(folder_ / "b/result.json"));
  EXPECT_FALSE(fs::exists(folder_ / "c"));
}

// As a scheduler has it whose time is shorter than the start.
TEST_F(Runner, OneThatIsStoppedAgainAndAgainBeforeAStepHasFailed) {
  const auto stopped = [&](std::optional<std::size_t> only) {
    fs::remove(folder_ / "slow/ready");
    return run_and_signal({"slow"}, 1, SIGTERM, {"slow"}, only);
  };
  for (int time = 1; time <= 6; ++time) EXPECT_TRUE(stopped(std::nullopt).failed.empty()) << "by a person";
  for (int time = 1; time <= 4; ++time) EXPECT_TRUE(stopped(0).failed.empty()) << time;
  const RunnerEnd end = stopped(0);
  ASSERT_EQ(end.failed.size(), 1u);
  EXPECT_TRUE(contains(end.failed[0].reason, "stopped 5 times in a row before it had made a step"));
  EXPECT_EQ(status()[0].state, MemberState::kFailed);
  EXPECT_TRUE(stopped(0).failed.empty());  // a new start has new tries
}

// SLURM signals every process of a step.
TEST_F(Runner, OneThatASignalEndedThatWasForAllHasNotFailed) {
  const RunnerEnd end = run({"struck"});
  EXPECT_EQ(end.signal, SIGTERM);
  EXPECT_TRUE(end.failed.empty());
}

TEST_F(Runner, AStepBetweenStopsStartsTheCountAnew) {
  make_folders(folder_ / "waits");
  std::ofstream(folder_ / "waits/stalls.txt") << "4\n";
  EXPECT_TRUE(run_and_signal({"waits"}, 1, SIGTERM, {"waits"}, 0).failed.empty());
  EXPECT_FALSE(fs::exists(folder_ / "waits/stalls.txt"));
}

TEST_F(Runner, SigintToo) {
  const RunnerEnd stopped = run_and_signal({"waits"}, 1, SIGINT, {"waits"});
  EXPECT_EQ(stopped.signal, SIGINT);
  EXPECT_TRUE(stopped.failed.empty());
  EXPECT_TRUE(contains(text("waits/train.log"), "saved"));
}

TEST_F(Runner, StatusOfARunningMember) {
  members_ = {fake_member("waits"), fake_member("later")};
  std::vector<MemberStatus> seen;
  std::thread observer([&] {
    comes_true([&] { return fs::exists(folder_ / "waits/ready"); });
    const Lease held = take_run({folder_ / "waits"});  // as training has it
    seen = read_status(members_, folder_.path());
    kill(getpid(), SIGTERM);
  });
  run_members(members_, folder_.path(), {.program = trainer_});
  observer.join();
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0].state, MemberState::kRunning);
  EXPECT_EQ(seen[0].step, 35);
  EXPECT_EQ(seen[0].steps, 40);
  EXPECT_EQ(seen[1].state, MemberState::kWaiting);
  // 7 s for 35 steps; 5 + 40 are left.
  EXPECT_DOUBLE_EQ(seconds_left(seen, 1), 9);
  EXPECT_DOUBLE_EQ(seconds_left(seen, 2), 4.5);
  EXPECT_TRUE(contains(status_text(seen), "1 running, 1 waiting, 2 in all; time left: 9 s"));
}

TEST(StudyStatus, TimeLeftIsByWhatIsFinished) {
  const std::vector<MemberStatus> members{
      {.name = "a", .state = MemberState::kDone, .step = 100, .steps = 100, .seconds = 50},
      {.name = "b", .state = MemberState::kRunning, .step = 40, .steps = 100, .seconds = 1},
      {.name = "c", .state = MemberState::kFailed, .step = 0, .steps = 100},
      {.name = "d", .state = MemberState::kWaiting, .step = 0, .steps = 100}};
  EXPECT_DOUBLE_EQ(seconds_left(members, 1), 0.5 * (60 + 100));
  EXPECT_DOUBLE_EQ(seconds_left(members, 8), 0.5 * (60 + 100) / 2);  // no more than two can run
  EXPECT_TRUE(std::isnan(seconds_left({members[3]}, 1)));
  EXPECT_EQ(seconds_left({members[0]}, 1), 0);
}

TEST(StudyStatus, DamagedFilesAreToldNotThrown) {
  const ScratchFolder folder;
  const std::vector<Member> members{fake_member("a"), fake_member("b")};
  write_finished(folder / "a");
  std::ofstream(folder / "a/result.json") << "{";
  write_started(folder / "b");
  std::ofstream(folder / "b/metrics.jsonl") << "{\"step\":\"many\"}\n";
  const std::vector<MemberStatus> status = read_status(members, folder.path());
  EXPECT_EQ(status[0].state, MemberState::kFailed);
  EXPECT_TRUE(contains(status[0].note, "damaged"));
  EXPECT_EQ(status[1].state, MemberState::kFailed);
  EXPECT_TRUE(contains(status[1].note, "metrics.jsonl", "damaged"));
}

Study small_study() {
  Study study;
  study.kind = Study::kSuite;
  study.schedules = {"CR"};
  study.recipe.data.dir = "data";
  study.recipe.training.steps = 40;
  complete(study);
  return study;
}

TEST(StudyFolder, HoldsItsDefinition) {
  const ScratchFolder folder;
  const Study study = small_study();
  { const StudyFolder taken(folder / "study", study); }
  EXPECT_TRUE(differences(read_study(folder / "study"), study).empty());
  Study same = study;
  same.recipe.running.threads = 5;
  { const StudyFolder taken(folder / "study", same); }
  Study changed = study;
  changed.recipe.training.lr = 0.5;
  write_finished(folder / "study" / members(study)[0].name);
  EXPECT_TRUE(contains(user_error([&] { StudyFolder(folder / "study", changed); }),
                       "lr is 0.1 in this study, but 0.5 was asked for"));
}

TEST(StudyFolder, OfWhichNoRunHasBegunMayBeCorrected) {
  const ScratchFolder folder;
  Study study = small_study();
  { const StudyFolder taken(folder / "study", study); }
  write_started(folder / "study" / members(study)[0].name);
  study.recipe.data.dir = "the right one";
  { const StudyFolder taken(folder / "study", study); }
  EXPECT_EQ(read_study(folder / "study").recipe.data.dir, "the right one");
}

TEST(StudyFolder, OfWhichARunIsAliveMayNot) {
  const ScratchFolder folder;
  Study study = small_study();
  { const StudyFolder taken(folder / "study", study); }
  const MemberPaths first(folder / "study", members(study).at(0));
  fs::create_directories(first.run.folder);
  study.recipe.training.lr = 0.5;
  for (const fs::path& lease : {first.run.lease(), first.lease()}) {
    const Lease held(lease);  // it reads its data still
    EXPECT_TRUE(contains(user_error([&] { StudyFolder(folder / "study", study); }), "lr is ", "but 0.5"));
  }
  const StudyFolder taken(folder / "study", study);
}

TEST(StudyFolder, GrowsBySeedsAndDoesNotShrink) {
  const ScratchFolder folder;
  Study study = small_study();
  study.seeds = 2;
  { EXPECT_EQ(StudyFolder(folder / "study", study).seeds_before(), 0); }
  write_finished(folder / "study" / members(study)[0].name);
  Study larger = study;
  larger.seeds = 3;
  { EXPECT_EQ(StudyFolder(folder / "study", larger).seeds_before(), 2); }
  EXPECT_EQ(read_study(folder / "study").seeds, 3);
  // Those that there were are the first of those that there are.
  const std::vector<Member> before = members(study), after = members(larger);
  ASSERT_EQ(after.size(), before.size() + 1);
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_EQ(after[i].name, before[i].name);
  EXPECT_TRUE(contains(user_error([&] { StudyFolder(folder / "study", study); }),
                       "has 3 seeds, but --seeds is 2; it can grow, not shrink"));
  larger.seeds = 4;
  larger.recipe.training.lr = 0.5;
  EXPECT_TRUE(contains(user_error([&] { StudyFolder(folder / "study", larger); }), "lr is 0.1"));
  EXPECT_EQ(read_study(folder / "study").seeds, 3);
}

TEST(StudyFolder, IsTakenByOneProcess) {
  const ScratchFolder folder;
  const StudyFolder taken(folder / "study", small_study());
  EXPECT_TRUE(
      contains(user_error([&] { StudyFolder(folder / "study", small_study()); }), "another process runs"));
}

TEST(StudyFolder, IsNotMixedWithOtherThings) {
  const ScratchFolder folder;
  std::ofstream(folder / "notes.txt") << "mine";
  EXPECT_TRUE(contains(user_error([&] { StudyFolder(folder.path(), small_study()); }), "holds other things"));
  EXPECT_TRUE(contains(user_error([&] { read_study(folder.path()); }), "no study.toml"));
}

}  // namespace
}  // namespace lowtide
