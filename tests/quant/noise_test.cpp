#include "lowtide/quant/noise.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/quant/reference.h"
#include "tests/testing.h"

namespace lowtide {
namespace {

// Seed and step beyond 32 bits, to see that all of them count.
constexpr NoiseKey kKey{0x123456789abcdef0u, 0x700000005, 11};

NoiseCounter reference_counter(const NoiseKey& key) {
  constexpr auto kPurpose = static_cast<std::uint32_t>(RandomPurpose::kRounding);
  return {static_cast<std::uint32_t>(key.seed), static_cast<std::uint32_t>(key.seed >> 32) ^ (kPurpose << 24),
          static_cast<std::uint32_t>(key.step), static_cast<std::uint32_t>(key.step >> 32), key.tensor};
}

// The index in memory of each element, by the order of the contiguous tensor: N, H, W, C for four dimensions.
torch::Tensor memory_index(const torch::Tensor& x) {
  const torch::Tensor index = torch::arange(x.numel());
  if (x.dim() != 4) return index;
  return index.view({x.size(0), x.size(2), x.size(3), x.size(1)})
      .permute({0, 3, 1, 2})
      .contiguous()
      .flatten();
}

TEST(Noise, IsWithinHalfOpenBothWays) {
  EXPECT_EQ(noise_value(0), -0.5f + 0x1p-17f);
  EXPECT_EQ(noise_value(0xffffu), 0.5f - 0x1p-17f);
  EXPECT_EQ(noise_value(0x8000u), 0x1p-17f);
}

TEST(Noise, MomentsAreThoseOfTheUniformDistribution) {
  const NoiseCounter counter = reference_counter(kKey);
  constexpr int kCount = 100000;
  double sum = 0, squares = 0;
  for (int i = 0; i < kCount; ++i) {
    const double value = noise_at(counter, i);
    sum += value;
    squares += value * value;
  }
  // Variance 1/12; that of the squares is 1/80 - 1/144 = 1/180. Four standard errors each.
  EXPECT_NEAR(sum / kCount, 0, 4 * std::sqrt(1.0 / 12 / kCount));
  EXPECT_NEAR(squares / kCount, 1.0 / 12, 4 * std::sqrt(1.0 / 180 / kCount));
}

TEST(StochasticRounding, EveryElementHasTheNoiseOfItsIndex) {
  const std::vector<std::vector<std::int64_t>> shapes{
      {1}, {63}, {65}, {4095}, {4097}, {10000}, {3, 4097}, {70, 63}, {5, 6, 7}, {7, 3, 5, 5}, {2, 65, 8, 8}};
  const NoiseCounter counter = reference_counter(kKey);
  for (const auto& shape : shapes) {
    const torch::Tensor x = normal(shape, 2);
    const torch::Tensor index = memory_index(x);
    const auto noise = [&](std::int64_t i) { return noise_at(counter, index.data_ptr<std::int64_t>()[i]); };
    for (const RangeGroup group : {RangeGroup::kTensor, RangeGroup::kRow}) {
      for (const int bits : {2, 5, 8, 12, 16}) {
        SCOPED_TRACE(testing::Message() << bits << " bits of shape " << torch::IntArrayRef(shape));
        EXPECT_EQ(codes_of(quantise(x, group, bits, Noise::drawn(kKey))),
                  reference_encode(x, group, bits, noise).code);
      }
    }
  }
}

TEST(StochasticRounding, GivenNoiseIsAdded) {
  const torch::Tensor x = normal({3, 5, 7, 7}, 2);
  const torch::Tensor values = uniform(x.sizes(), -0.5, 0.5, 3);
  for (const int bits : {4, 12}) {
    const auto expected = reference_encode(x, RangeGroup::kRow, bits,
                                           [&](std::int64_t i) { return values.data_ptr<float>()[i]; });
    EXPECT_EQ(codes_of(quantise(x, RangeGroup::kRow, bits, Noise::given(values))), expected.code);
  }
}

TEST(StochasticRounding, ChangesWithSeedStepAndTensor) {
  const torch::Tensor x = normal({1000}, 2);
  const auto codes = [&](const NoiseKey& key) {
    return codes_of(quantise(x, RangeGroup::kTensor, 8, Noise::drawn(key)));
  };
  const auto first = codes(kKey);
  EXPECT_EQ(codes(kKey), first);
  std::vector<NoiseKey> others(5, kKey);
  others[0].seed += 1;
  others[1].seed += std::uint64_t{1} << 32;
  others[2].step += 1;
  others[3].step += std::int64_t{1} << 32;
  others[4].tensor += 1;
  for (const NoiseKey& other : others) EXPECT_NE(codes(other), first);
}

TEST(StochasticRounding, IsUnbiased) {
  constexpr int kSteps = 4000;
  const torch::Tensor x = uniform({200}, -1, 2, 4);
  for (const int bits : {2, 4}) {
    const Range range = measure_range(x, RangeGroup::kTensor);
    torch::Tensor sum = torch::zeros({200}, torch::kDouble);
    for (int step = 0; step < kSteps; ++step)
      sum += decode(encode(x, range, bits, Noise::drawn({1, step, 0}))).to(torch::kDouble);
    const double scale = encode(x, range, bits).scale.item<double>();
    const torch::Tensor position = (x - range.min).to(torch::kDouble) / scale;
    const torch::Tensor part = position - position.floor();
    // A code is the higher one with probability `part`: four standard errors, and by Bernstein's inequality
    // 16/3 draws more, which matter where the part is so small that few are expected. 1e-6 is what float32
    // adds.
    const torch::Tensor error = (sum / kSteps - x.to(torch::kDouble)).abs();
    const torch::Tensor allowed =
        scale * (4 * (part * (1 - part) / kSteps).sqrt() + 16.0 / 3 / kSteps) + 1e-6;
    EXPECT_LE((error - allowed).max().item<double>(), 0) << bits << " bits";
    // And all elements together: 800,000 draws leave no room for a small bias of all.
    const double joint = (sum / kSteps - x.to(torch::kDouble)).mean().item<double>();
    EXPECT_LE(std::abs(joint),
              4 * scale * (part * (1 - part)).mean().sqrt().item<double>() / std::sqrt(200.0 * kSteps));
  }
}

TEST(StochasticRounding, TheNumberOfThreadsDoesNotMatter) {
  const torch::Tensor x = normal({31, 7, 21, 23}, 5);
  for (const int bits : {3, 8, 16}) {
    for (const RangeGroup group : {RangeGroup::kTensor, RangeGroup::kRow}) {
      expect_independent_of_threads([&] { return quantise(x, group, bits, Noise::drawn(kKey)).code; });
      expect_independent_of_threads([&] { return decode(quantise(x, group, bits, Noise::drawn(kKey))); });
    }
  }
}

}  // namespace
}  // namespace lowtide
