#pragma once

#include <array>
#include <cstdint>

#if defined(__CUDACC__)
#define LOWTIDE_HOST_DEVICE __host__ __device__
#else
#define LOWTIDE_HOST_DEVICE
#endif

namespace lowtide {

// Philox4x32 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): a bijection of a
// 128-bit counter under a 64-bit key. Seven rounds are the fewest that pass BigCrush in that paper (table 2).
// Random numbers are a function of where they are used, never of when: that makes a result independent of the
// number of threads, of the order of work and of a resume.
struct Philox {
  static constexpr int kRounds = 7;
  static constexpr std::uint32_t kMultiplier0 = 0xD2511F53u;
  static constexpr std::uint32_t kMultiplier1 = 0xCD9E8D57u;
  static constexpr std::uint32_t kWeyl0 = 0x9E3779B9u;  // golden ratio
  static constexpr std::uint32_t kWeyl1 = 0xBB67AE85u;  // sqrt(3) - 1

  struct Block {
    std::uint32_t word[4];
  };

  LOWTIDE_HOST_DEVICE static Block block(std::uint32_t key0, std::uint32_t key1, std::uint32_t c0,
                                         std::uint32_t c1, std::uint32_t c2, std::uint32_t c3) {
    for (int round = 0; round < kRounds; ++round) {
      const std::uint64_t product0 = static_cast<std::uint64_t>(kMultiplier0) * c0;
      const std::uint64_t product1 = static_cast<std::uint64_t>(kMultiplier1) * c2;
      c0 = static_cast<std::uint32_t>(product1 >> 32) ^ c1 ^ key0;
      c1 = static_cast<std::uint32_t>(product1);
      c2 = static_cast<std::uint32_t>(product0 >> 32) ^ c3 ^ key1;
      c3 = static_cast<std::uint32_t>(product0);
      key0 += kWeyl0;
      key1 += kWeyl1;
    }
    return {{c0, c1, c2, c3}};
  }
};

// What a stream of random numbers is for. Streams with different purposes never share a counter.
enum class RandomPurpose : std::uint32_t {
  kRounding = 1,        // stochastic rounding: index = step, sub = layer
  kShuffle = 2,         // order of an epoch: index = epoch
  kAugmentation = 3,    // crops and flips: index = position in the stream of training items
  kSplit = 4,           // which items are held out for validation
  kInitialisation = 5,  // weights: sub = parameter
  kNeighbours = 6,      // sampled neighbours: index = step and node, sub = layer
  kDirection = 7,       // directions in a loss landscape: index = direction, sub = weight
  kDrawnGraph = 8       // made-up graphs: index = edge, sub = what is drawn
};

// A sequential reader of one stream: (seed, purpose, index, sub) says where it starts, always at its
// beginning.
class RandomStream {
 public:
  RandomStream(std::uint64_t seed, RandomPurpose purpose, std::uint64_t index, std::uint32_t sub = 0)
      : key0_(static_cast<std::uint32_t>(seed)),
        key1_(static_cast<std::uint32_t>(seed >> 32) ^ (static_cast<std::uint32_t>(purpose) << 24)),
        index_(index),
        sub_(sub) {}

  std::uint32_t next() {
    if (used_ == 4) {
      block_ = Philox::block(key0_, key1_, counter_++, static_cast<std::uint32_t>(index_),
                             static_cast<std::uint32_t>(index_ >> 32), sub_);
      used_ = 0;
    }
    return block_.word[used_++];
  }

  // Uniform in [0, 1), 24 bits: every value is a float.
  float uniform() { return static_cast<float>(next() >> 8) * 0x1p-24f; }

  // Uniform in [0, bound), without bias (Lemire, "Fast random integer generation in an interval", 2019).
  std::uint32_t below(std::uint32_t bound) {
    std::uint64_t product = static_cast<std::uint64_t>(next()) * bound;
    if (static_cast<std::uint32_t>(product) < bound) {
      const std::uint32_t threshold = -bound % bound;
      while (static_cast<std::uint32_t>(product) < threshold) {
        product = static_cast<std::uint64_t>(next()) * bound;
      }
    }
    return static_cast<std::uint32_t>(product >> 32);
  }

 private:
  std::uint32_t key0_;
  std::uint32_t key1_;
  std::uint64_t index_;
  std::uint32_t sub_;
  std::uint32_t counter_ = 0;
  Philox::Block block_{};
  int used_ = 4;
};

}  // namespace lowtide
