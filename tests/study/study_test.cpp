#include "lowtide/study/study.h"

#include <gtest/gtest.h>

#include <set>

#include "lowtide/cost/summary.h"
#include "lowtide/study/script.h"
#include "tests/io/scratch.h"

namespace lowtide {
namespace {

Study suite_of(const std::vector<std::string>& schedules) {
  Study study;
  study.kind = Study::kSuite;
  study.schedules = schedules;
  study.recipe.data.dir = "data";
  study.recipe.training.steps = 1000;
  return study;
}

Study critical() {
  Study study = suite_of({});
  study.kind = Study::kCritical;
  return study;
}

std::string error_of_study(Study study) {
  return user_error([&] { complete(study); });
}

TEST(Study, ASuiteIsTheTenAndStaticAndFp32TimesSeeds) {
  Study study = suite_of({});
  complete(study);
  const std::vector<Member> all = members(study);
  ASSERT_EQ(all.size(), 36u);
  EXPECT_EQ(all[0].name, "RR-seed1");
  EXPECT_EQ(all[11].name, "fp32-seed1");
  EXPECT_EQ(all[12].name, "RR-seed2");  // seed by seed
  std::set<std::string> names;
  for (const Member& member : all) names.insert(member.name);
  EXPECT_EQ(names.size(), 36u);
  EXPECT_EQ(to_string(schedule_of(all[0].recipe.precision)), "RR 3:8 n=8 grad=8");
  EXPECT_EQ(all[35].recipe.training.seed, 3u);
}

Study study_of_script(const std::string& command) {
  Study study;
  study.kind = Study::kSuite;
  study.schedules = {"CR", "delayed 25% RR 3:8 n=8 grad=8"};
  study.command = command;
  study.recipe.training.steps = 1000;
  return study;
}

TEST(StudyOfAScript, EachMemberPutsItsWordsInPlaceQuotedForTheShell) {
  Study study = study_of_script(
      "python3 'my train.py' --schedule={schedule} --seed {seed} -n {steps} --out {out} \"a b\"");
  complete(study);
  const std::vector<Member> all = members(study);
  ASSERT_EQ(all.size(), 6u);
  EXPECT_EQ(
      shell_arguments(all[3], "runs/it's mine", 2),
      (std::vector<std::string>{"-c",
                                "exec env OMP_NUM_THREADS=2 python3 'my train.py' --schedule='delayed 25% RR "
                                "3:8 n=8 grad=8' --seed 2 -n 1000 --out 'runs/it'\\''s mine' \"a b\""}));
}

TEST(StudyOfAScript, ItsFileGivesItBack) {
  Study study = study_of_script(R"(sh -c 'echo "{schedule}" \ [a] # x' {seed} {out})");
  complete(study);
  const Study read = parse_study(to_toml(study), "study.toml");
  EXPECT_EQ(read.command, study.command);
  EXPECT_TRUE(differences(read, study).empty());
  study.command += " ";
  EXPECT_EQ(differences(read, study), std::vector<std::string>{"command"});
}

TEST(StudyOfAScript, WordsThatLackOrAreUnknownAreNamed) {
  EXPECT_TRUE(contains(error_of_study(study_of_script("train {schedule} {out}")), "lacks {seed}"));
  EXPECT_TRUE(contains(error_of_study(study_of_script("train {schedule} {seed} {out} {step}")),
                       "did you mean 'steps'?"));
  Study without_steps = study_of_script("train {schedule} {seed} {out}");
  without_steps.recipe.training.steps = 0;
  EXPECT_TRUE(contains(error_of_study(without_steps), "a study needs its length in steps"));
}

TEST(Study, SchedulesMayBeNamesWithCommasAndWholeLines) {
  Study study = suite_of({"cr,Static", "delayed 25% RR 3:8 n=8 grad=8", "delayed 25 RR 3:8 n=8 grad=8",
                          "progressive 3,4,6 grad=8"});
  study.seeds = 1;
  complete(study);
  const std::vector<Member> all = members(study);
  ASSERT_EQ(all.size(), 5u);
  EXPECT_EQ(all[0].setting, "CR");
  EXPECT_EQ(all[1].setting, "static");
  EXPECT_EQ(all[2].name, "delayed-25pct-RR-3-8-n=8-grad=8-seed1");
  EXPECT_NE(all[2].name, all[3].name);
  EXPECT_EQ(schedule_of(all[4].recipe.precision).levels, (std::vector{3, 4, 6}));
}

TEST(Study, MembersThatNeedItGetTheirOwnKeys) {
  Study study = suite_of({"static,fp32,CR"});
  study.recipe.precision.grad_bits = "6:8";
  study.recipe.precision.eval_bits = 6;
  complete(study);
  const std::vector<Member> all = members(study);
  EXPECT_EQ(to_string(schedule_of(all[0].recipe.precision)), "static 8 grad=8");
  EXPECT_EQ(all[0].recipe.precision.eval_bits, 6);
  EXPECT_EQ(all[1].recipe.precision.eval_bits, -1);  // fp32 measures no ranges
  EXPECT_EQ(schedule_of(all[2].recipe.precision).grad, (BitRange{6, 8}));
}

TEST(Study, DeficitsComeBeforeAWholeNormalTraining) {
  Study study = critical();
  study.deficits = {500, 200, 500};
  study.recipe.training.swa_start = 0.8;
  study.seeds = 1;
  complete(study);
  const std::vector<Member> all = members(study);
  ASSERT_EQ(all.size(), 3u);  // one without a deficit is added
  EXPECT_EQ(all[0].setting, "deficit 0");
  EXPECT_EQ(all[1].setting, "deficit 200");
  const Recipe& longest = all[2].recipe;
  EXPECT_EQ(longest.training.steps, 1500);
  EXPECT_EQ(longest.training.lr_delay, 500);
  EXPECT_DOUBLE_EQ(longest.training.swa_start, (500 + 0.8 * 1000) / 1500);
  const auto runs = summarise(schedule_of(longest.precision), longest.training.steps).runs;
  EXPECT_EQ(runs, (std::vector<BitRun>{{{3, 8}, 500}, {{8, 8}, 1000}}));
  EXPECT_EQ(all[0].recipe.training.steps, 1000);
  EXPECT_EQ(all[0].recipe.training.lr_delay, 0);
}

TEST(Study, WindowsLieWithinTheNormalTraining) {
  Study study = critical();
  study.window = 300;
  study.starts = {700, 0};
  study.seeds = 1;
  complete(study);
  const std::vector<Member> all = members(study);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].setting, "no window");
  EXPECT_FALSE(all[0].at);
  const Recipe& last = all[2].recipe;
  EXPECT_EQ(all[2].at, 700);
  EXPECT_EQ(last.training.steps, 1000);
  EXPECT_EQ(summarise(schedule_of(last.precision), 1000).runs,
            (std::vector<BitRun>{{{8, 8}, 700}, {{3, 8}, 300}}));
  EXPECT_EQ(summarise(schedule_of(all[0].recipe.precision), 1000).runs,
            (std::vector<BitRun>{{{8, 8}, 1000}}));
}

TEST(Study, ItsFileGivesItBack) {
  Study suite = suite_of({"CR", "progressive 3,4,6,8 grad=8"});
  suite.recipe.data.dir = "a \"quoted\" # folder";
  suite.seeds = 5;
  Study windows = critical();
  windows.window = 10;
  windows.starts = {0, 20};
  for (Study study : {suite, windows}) {
    complete(study);
    const Study again = parse_study(to_toml(study), "study.toml");
    EXPECT_EQ(to_toml(again), to_toml(study));
    EXPECT_TRUE(differences(again, study).empty());
  }
}

TEST(Study, ARangeTestIsOneToo) {
  Study study;
  study.kind = Study::kRangeTest;
  study.test_steps = 200;
  study.window = 25;
  study.threshold = 0.02;
  study.recipe.data.dir = "data";
  study.recipe.training.steps = 40;
  study.recipe.precision.bits = "3:5";
  study.recipe.precision.schedule = "static 8 grad=8";  // it has its own
  complete(study);
  const std::vector<Member> all = members(study);
  ASSERT_EQ(all.size(), 4u);  // 2, 3, 4, 5
  EXPECT_EQ(all[0].name, "bits-2");
  const Study again = parse_study(to_toml(study), "study.toml");
  EXPECT_EQ(to_toml(again), to_toml(study));
  EXPECT_TRUE(differences(again, study).empty());
  study.test_steps = 30;
  EXPECT_TRUE(contains(user_error([&] { complete(study); }), "fewer than two windows of 25"));
  study.test_steps = 200;
  study.deficits = {5};
  EXPECT_TRUE(contains(user_error([&] { complete(study); }), "a range test has its own schedules"));
  EXPECT_TRUE(contains(
      user_error([&] { parse_study("kind = \"suite\"\nsteps = 5\nthreshold = 0.5\n", "study.toml"); }),
      "test-steps and threshold are a range test's"));
}

TEST(Study, DifferencesAreThoseThatChangeAResult) {
  Study study = suite_of({"CR"});
  complete(study);
  Study other = study;
  other.recipe.running.threads = 7;
  other.recipe.running.log_every = 1;
  other.recipe.precision.schedule = "RR";  // each member has its own
  EXPECT_TRUE(differences(study, other).empty());
  other.recipe.training.lr = 0.5;
  other.seeds = 4;
  EXPECT_EQ(differences(study, other), (std::vector<std::string>{"lr", "seeds"}));
  Study deficits = critical();
  deficits.deficits = {5};
  complete(deficits);
  EXPECT_EQ(differences(study, deficits), (std::vector<std::string>{"deficits", "kind", "schedules"}));
}

TEST(Study, MistakesAreNamed) {
  EXPECT_TRUE(contains(error_of_study(suite_of({"XX"})), "XX"));
  EXPECT_TRUE(contains(error_of_study(suite_of({"CR,RR", "cr"})), "'CR' is in the study twice"));
  EXPECT_TRUE(contains(error_of_study(suite_of({"deficit"})), "deficit"));
  Study study = suite_of({"CT"});
  study.recipe.precision.cycles = 3;
  EXPECT_TRUE(contains(error_of_study(study), "even number of cycles"));
  study = suite_of({"CR"});
  study.recipe.training.steps = 5;
  EXPECT_TRUE(contains(error_of_study(study), "n=8 cycles in 5 steps"));
  study.recipe.training.steps = 0;
  EXPECT_TRUE(contains(error_of_study(study), "in steps"));
  study = suite_of({"CR"});
  study.recipe.precision.schedule = "delayed 25% RR 3:8 n=8 grad=8";
  EXPECT_TRUE(contains(error_of_study(study), "whole line"));
  study = suite_of({"CR"});
  study.seeds = 0;
  EXPECT_TRUE(contains(error_of_study(study), "seeds is 0"));
  study = suite_of({"CR"});
  study.deficits = {5};
  EXPECT_TRUE(contains(error_of_study(study), "no deficits"));
}

TEST(Study, MistakesOfCriticalStudiesAreNamed) {
  Study study = critical();
  EXPECT_TRUE(contains(error_of_study(study), "--deficits, or a --window"));
  study.deficits = {10};
  study.window = 5;
  EXPECT_TRUE(contains(error_of_study(study), "--deficits, or a --window"));
  study.window = 0;
  study.recipe.precision.bits = "8";
  EXPECT_TRUE(contains(error_of_study(study), "lowest:highest"));
  study.recipe.precision.bits = "3:8";
  study.deficits = {-1};
  EXPECT_TRUE(contains(error_of_study(study), "deficits has -1"));
  study.deficits = {};
  study.window = 300;
  study.starts = {701};
  EXPECT_TRUE(contains(error_of_study(study), "a window to step 1001 ends beyond the 1000 steps"));
}

TEST(Study, AFilesMistakesNameTheFile) {
  EXPECT_TRUE(contains(user_error([] { parse_study("kind = \"suite\"\ncolour = 1\n", "x/study.toml"); }),
                       "x/study.toml", "colour"));
  EXPECT_TRUE(
      contains(user_error([] { parse_study("kind = \"walk\"\n", "x/study.toml"); }), "x/study.toml", "walk"));
  EXPECT_TRUE(
      contains(user_error([] { parse_study("kind = \n", "x/study.toml"); }), "x/study.toml", "line 1"));
}

}  // namespace
}  // namespace lowtide
