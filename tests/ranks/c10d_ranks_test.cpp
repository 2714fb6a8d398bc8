#include "lowtide/ranks/c10d_ranks.h"

#include <gtest/gtest.h>
#include <torch/cuda.h>

#include <cstdlib>
#include <filesystem>

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

INSTANTIATE_TEST_SUITE_P(Devices, GroupOfOne, testing::Values("cpu", "cuda"),
                         [](const auto& parameter) { return parameter.param; });

}  // namespace
}  // namespace lowtide
