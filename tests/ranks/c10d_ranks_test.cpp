#include "lowtide/ranks/c10d_ranks.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <torch/cuda.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <thread>

namespace lowtide {
namespace {

// A group of one process says what can be seen of a transport without a second one: that it connects, takes this build's tensors, and gives
// back what it was given.
class GroupOfOne : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "cuda" && !torch::cuda::is_available())
      GTEST_SKIP() << "no CUDA device, or a build without CUDA";
    std::string folder = (std::filesystem::temp_directory_path() / "lowtide-group-XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    try {
      ranks_ = join();
    } catch (const UserError& error) {  // PyTorch's wheels bring no headers of Gloo along
      if (std::string(error.what()).find("this build has no") == std::string::npos) throw;
      GTEST_SKIP() << error.what();
    }
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::shared_ptr<C10dRanks> join(const std::string& problem = "") {
    const std::filesystem::path folder = folder_ / std::to_string(++groups_);
    std::filesystem::create_directory(folder);
    return C10dRanks::join({.folder = folder.string()}, GetParam(), problem);
  }
  torch::Tensor numbers() const { return torch::arange(12.0f).view({3, 4}).to(torch::Device(GetParam())); }

  std::filesystem::path folder_;
  int groups_ = 0;
  std::shared_ptr<C10dRanks> ranks_;
};

TEST_P(GroupOfOne, SumsAndGathersWhatItHas) {
  EXPECT_EQ(ranks_->size(), 1);
  EXPECT_TRUE(ranks_->sum({numbers(), numbers()}).equal(numbers() * 2));
  EXPECT_EQ(ranks_->sum({numbers()}).device().type(), numbers().device().type());
  const auto gathered = ranks_->gather(numbers());
  ASSERT_EQ(gathered.size(), 1u);
  EXPECT_TRUE(gathered[0].equal(numbers()));
  EXPECT_EQ(ranks_->gather(std::string("mine")), std::vector<std::string>{"mine"});
}

TEST_P(GroupOfOne, BroadcastsTensorsOfTheHostToo) {
  const torch::Tensor on_device = numbers(), on_host = torch::arange(5);
  ranks_->broadcast({on_device, on_host});
  EXPECT_TRUE(on_device.equal(numbers()));
  EXPECT_TRUE(on_host.equal(torch::arange(5)));
}

TEST_P(GroupOfOne, TellsWhatKeepsItFromTakingPart) {
  try {
    join("its data is missing");
    FAIL() << "took part";
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(), "rank 0: its data is missing");
  }
}

// What a rank of several, each in a process of its own, learns where their connection breaks.
class RanksApart : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = (std::filesystem::temp_directory_path() / "lowtide-apart-XXXXXX").string();
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // One of local ranks, or, with a port, one of ranks that a launcher started.
  RankEnvironment place(int rank, int size, int port = 0) const {
    if (port == 0) return {.rank = rank, .size = size, .local_rank = rank, .folder = folder_};
    return {.rank = rank, .size = size, .local_rank = rank, .address = "127.0.0.1", .port = port};
  }

  // Joins and works; notes how that failed, with a + where it tells people.
  pid_t start(const RankEnvironment& mine, const std::function<void(Ranks&)>& work) const {
    const pid_t pid = fork();
    if (pid != 0) return pid;
    std::ofstream note(folder_ + "/note" + std::to_string(mine.rank));
    try {
      work(*C10dRanks::join(mine, "cpu", ""));
      note << "did it";
    } catch (const RankFailure& failure) {
      note << (failure.tells() ? "+" : "-") << failure.what();
    } catch (const std::exception& error) {
      note << error.what();
    }
    note.close();
    std::_Exit(0);
  }

  std::string note_of(pid_t pid, int rank) const {
    waitpid(pid, nullptr, 0);
    std::ifstream file(folder_ + "/note" + std::to_string(rank));
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string folder_;
};

TEST_F(RanksApart, ThatAllFailForOneReasonTellItOnce) {
  const auto fail = [](Ranks& ranks) { ranks.gather(torch::zeros({2}, torch::kComplexFloat)); };
  const pid_t ranks[]{start(place(0, 2), fail), start(place(1, 2), fail)};
  const std::string notes = note_of(ranks[0], 0) + note_of(ranks[1], 1);
  if (notes.find("this build has no") != notes.npos) GTEST_SKIP() << notes;
  EXPECT_EQ(std::count(notes.begin(), notes.end(), '+'), 1) << notes;
  EXPECT_NE(notes.find("+the connection between the ranks broke: "), notes.npos) << notes;
  EXPECT_NE(notes.find("calar type"), notes.npos) << notes;  // what Gloo says
}

TEST_F(RanksApart, OneThatDoesNotComeIsNamed) {
  const auto nothing = [](Ranks&) {};
  const auto impatient = [&](int rank) {
    RankEnvironment mine = place(rank, 3, 20000 + getpid() % 12000);
    mine.patience = std::chrono::seconds(3);
    return mine;
  };
  const pid_t last = start(impatient(2), nothing);
  EXPECT_EQ(note_of(last, 2),
            fmt::format("rank 2 finds no rank 0 at 127.0.0.1:{} for 3 s; is it started, and are "
                        "these MASTER_ADDR and MASTER_PORT its own?",
                        impatient(2).port));
  const pid_t ranks[]{start(impatient(0), nothing), start(impatient(2), nothing)};
  const std::string line = fmt::format(
      "rank 0 waits for rank 1 at 127.0.0.1:{}, which has not come in 3 s; is it started, and has "
      "it this MASTER_ADDR and MASTER_PORT?",
      impatient(0).port);
  EXPECT_EQ(note_of(ranks[0], 0), line);
  EXPECT_EQ(note_of(ranks[1], 2), "-" + line);
}

// It is heard all the while.
TEST_F(RanksApart, OneInALongStepIsNotTakenForTheOneThatIsGone) {
  const int port = 20000 + getpid() % 12000;
  const auto meet = [](Ranks& ranks) { ranks.gather(torch::zeros({1})); };
  const pid_t ranks[]{start(place(0, 3, port),
                            [&](Ranks& all) {
                              meet(all);
                              meet(all);
                            }),
                      start(place(1, 3, port),
                            [&](Ranks& all) {
                              meet(all);
                              std::this_thread::sleep_for(std::chrono::seconds(20));
                            }),
                      start(place(2, 3, port), [&](Ranks& all) {
                        meet(all);
                        std::_Exit(9);
                      })};
  const std::string first = note_of(ranks[0], 0);
  EXPECT_EQ(note_of(ranks[1], 1), "") << "it was dismissed";
  note_of(ranks[2], 2);
  if (first.find("this build has no") != first.npos) GTEST_SKIP() << first;
  EXPECT_EQ(first, "+rank 2 is gone: it was killed, or its machine is down; the last checkpoint is whole");
}

// Two machines of two ranks each: of the one that goes down the other tells.
TEST_F(RanksApart, WhereTheFirstMachineGoesOneOfTheOtherTells) {
  const auto place_of = [&](int rank) {
    RankEnvironment mine = place(rank, 4, 20000 + getpid() % 12000);
    mine.local_rank = rank % 2;
    return mine;
  };
  const auto meet = [](Ranks& ranks) { ranks.gather(torch::zeros({1})); };
  const auto meet_and_go = [&](Ranks& ranks) {
    meet(ranks);
    std::_Exit(9);
  };
  const auto meet_twice = [&](Ranks& ranks) {
    meet(ranks);
    std::this_thread::sleep_for(std::chrono::seconds(1));
    meet(ranks);
  };
  const pid_t ranks[]{start(place_of(0), meet_and_go), start(place_of(1), meet_and_go),
                      start(place_of(2), meet_twice), start(place_of(3), meet_twice)};
  for (const int rank : {0, 1}) note_of(ranks[rank], rank);
  const std::string told = note_of(ranks[2], 2);
  if (told.find("this build has no") != told.npos) GTEST_SKIP() << told;
  const std::string line =
      "rank 0 is gone: it was killed, or its machine is down; the last checkpoint is whole";
  EXPECT_EQ(told, "+" + line);
  EXPECT_EQ(note_of(ranks[3], 3), "-" + line);
}

INSTANTIATE_TEST_SUITE_P(Devices, GroupOfOne, testing::Values("cpu", "cuda"),
                         [](const auto& parameter) { return parameter.param; });

}  // namespace
}  // namespace lowtide
