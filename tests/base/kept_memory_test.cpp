#include "lowtide/base/kept_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

namespace lowtide {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST(KeptMemory, IsAlignedAndKnowsItsSize) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{64}, std::size_t{1000}, 3 * kMiB + 1}) {
    void* block = take_kept(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 64, 0U);
    EXPECT_EQ(kept_block_bytes(block), bytes);
    std::memset(block, 1, bytes);
    give_kept_back(block);
  }
}

// Whatever came before, the same blocks lie at the same addresses.
TEST(KeptMemory, TheSameAddressesAgain) {
  const auto step = [](unsigned order) {
    std::vector<KeptArray<char>> blocks;
    std::vector<const void*> addresses;
    for (int i = 1; i <= 50; ++i) {
      blocks.push_back(kept_array<char>(i * 70'001 % 900'000));
      addresses.push_back(blocks.back().get());
      if (i % 3 == 0) blocks.erase(blocks.begin() + i / 3);
    }
    std::shuffle(blocks.begin(), blocks.end(), std::mt19937(order));
    return addresses;
  };
  const auto first = step(1);
  const std::int64_t taken = kept_bytes();
  for (unsigned order = 2; order < 6; ++order) EXPECT_EQ(step(order), first);
  EXPECT_EQ(kept_bytes(), taken);
}

TEST(KeptMemory, BlocksDoNotOverlap) {
  std::mt19937 random(1);
  struct Block {
    KeptArray<unsigned char> memory;
    std::size_t bytes;
    unsigned char mark;
  };
  std::vector<Block> blocks;
  for (int i = 0; i < 5'000; ++i) {
    if (blocks.size() < 60 || random() % 2 == 0) {
      const std::size_t bytes = random() % (random() % 8 == 0 ? 300'000 : 3'000) + 1;
      const auto mark = static_cast<unsigned char>(random());
      blocks.push_back({kept_array<unsigned char>(static_cast<std::int64_t>(bytes)), bytes, mark});
      std::memset(blocks.back().memory.get(), mark, bytes);
    } else {
      const auto at = blocks.begin() + static_cast<std::ptrdiff_t>(random() % blocks.size());
      for (std::size_t k = 0; k < at->bytes; ++k)
        ASSERT_EQ(at->memory[static_cast<std::ptrdiff_t>(k)], at->mark);
      blocks.erase(at);
    }
  }
}

// What lies between two blocks that were given back is one range with them.
TEST(KeptMemory, NeighboursAreJoined) {
  auto a = kept_array<char>(static_cast<std::int64_t>(kMiB)),
       b = kept_array<char>(static_cast<std::int64_t>(kMiB)),
       c = kept_array<char>(static_cast<std::int64_t>(kMiB)), after = kept_array<char>(1 << 12);
  const char* begin = a.get();
  a.reset();
  c.reset();
  b.reset();
  EXPECT_EQ(kept_array<char>(static_cast<std::int64_t>(3 * kMiB)).get(), begin);
}

TEST(KeptMemory, AnotherThreadGivesBack) {
  KeptArray<char> block;
  std::thread([&] { block = kept_array<char>(static_cast<std::int64_t>(5 * kMiB)); }).join();
  std::memset(block.get(), 1, 5 * kMiB);
  block.reset();
  const std::int64_t taken = kept_bytes();
  // Threads that come later have the arenas of those that have ended.
  for (int i = 0; i < 20; ++i)
    std::thread([] { kept_array<char>(static_cast<std::int64_t>(5 * kMiB)); }).join();
  EXPECT_EQ(kept_bytes(), taken);
}

TEST(KeptMemory, TooMuchIsRefused) {
  EXPECT_THROW(take_kept(std::size_t{1} << 62), std::bad_alloc);
  EXPECT_THROW(take_kept(~std::size_t{0}), std::bad_alloc);
  EXPECT_NE(kept_array<char>(1), nullptr);
}

}  // namespace
}  // namespace lowtide
