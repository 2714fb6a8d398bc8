#include "lowtide/quant/quantizer.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "tests/quant/reference.h"
#include "tests/testing.h"

namespace lowtide {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// One element; lengths around a noise block (64), a chunk (4096) and several chunks; rows that end within
// both; four dimensions, channels of one and of many.
const std::vector<std::vector<std::int64_t>> kShapes{
    {1},    {1, 1},    {63},     {64},      {65},         {4095},        {4096},        {4097},      {10000},
    {3, 7}, {5, 4097}, {70, 63}, {4, 5, 6}, {7, 3, 5, 5}, {2, 65, 8, 8}, {16, 1, 3, 3}, {1, 3, 9, 9}};

struct Filling {
  const char* name;
  torch::Tensor (*fill)(torch::IntArrayRef sizes, std::uint64_t seed);
};
const std::vector<Filling> kFillings{
    {"normal", [](torch::IntArrayRef sizes, std::uint64_t seed) { return normal(sizes, seed); }},
    {"positive", [](torch::IntArrayRef sizes, std::uint64_t seed) { return uniform(sizes, 3, 5, seed); }},
    {"equal", [](torch::IntArrayRef sizes, std::uint64_t) { return torch::full(sizes, -0.37f); }},
    {"zero", [](torch::IntArrayRef sizes, std::uint64_t) { return torch::zeros(sizes); }},
    {"huge", [](torch::IntArrayRef sizes, std::uint64_t seed) { return normal(sizes, seed) * 1e30f; }},
    {"tiny", [](torch::IntArrayRef sizes, std::uint64_t seed) { return normal(sizes, seed) * 1e-30f; }},
};

using BitsAndGroup = std::tuple<int, RangeGroup>;

class Quantizer : public testing::TestWithParam<BitsAndGroup> {
 protected:
  int bits() const { return std::get<0>(GetParam()); }
  RangeGroup group() const { return std::get<1>(GetParam()); }

  template <typename Check>
  void for_all_inputs(const Check& check) const {
    std::uint64_t seed = 1;
    for (const auto& shape : kShapes) {
      for (const Filling& filling : kFillings) {
        SCOPED_TRACE(testing::Message() << filling.name << " of shape " << torch::IntArrayRef(shape));
        check(filling.fill(shape, seed++));
      }
    }
  }

  // How far, in scales, float32 may move a value beyond what rounding to a code does. With u = 2^-24: range,
  // scale, x - min and the quotient are off by u each, relative, so the quotient by 4 u top; the product of
  // code and scale by u top more, and u top for the higher orders.
  double slack() const { return 6 * 0x1p-24 * ((1 << bits()) - 1); }

  // The largest |decoded - x| minus what `codes` scales, and the last sum's rounding, allow.
  double excess_error(const torch::Tensor& x, const Quantized& q, double codes) const {
    const torch::Tensor error = (decode(q).to(torch::kDouble) - x.to(torch::kDouble)).abs();
    torch::Tensor scale = q.scale.to(torch::kDouble);
    if (scale.numel() > 1) {
      std::vector<std::int64_t> sizes(static_cast<std::size_t>(x.dim()), 1);
      sizes[0] = -1;
      scale = scale.view(sizes);
    }
    const double last_sum = 2 * 0x1p-24 * x.abs().max().item<double>();
    return (error - scale * (codes + slack()) - last_sum).max().item<double>();
  }
};

TEST_P(Quantizer, CodesAreThoseOfThePlainDefinition) {
  for_all_inputs([&](const torch::Tensor& x) {
    const Reference expected = reference_encode(x, group(), bits());
    const Quantized q = quantise(x, group(), bits());
    EXPECT_EQ(q.bits, bits());
    EXPECT_EQ(q.code.scalar_type(), bits() <= 8 ? torch::kByte : torch::kInt);
    EXPECT_EQ(codes_of(q), expected.code);
    EXPECT_EQ(numbers_of(q.scale), expected.scale);
    EXPECT_EQ(numbers_of(q.offset), expected.min);
  });
}

TEST_P(Quantizer, LayoutDoesNotMatter) {
  for_all_inputs([&](const torch::Tensor& x) {
    if (x.dim() != 4) return;
    const Noise noise = Noise::drawn({1, 2, 3});
    const Quantized rows = quantise(x.contiguous(), group(), bits(), noise);
    const Quantized last = quantise(x.contiguous(torch::MemoryFormat::ChannelsLast), group(), bits(), noise);
    EXPECT_EQ(codes_of(rows), codes_of(last));
    EXPECT_TRUE(rows.code.is_contiguous(torch::MemoryFormat::ChannelsLast));
    EXPECT_TRUE(same(decode(rows), decode(last)));
    // A view that is neither.
    const Quantized view = quantise(torch::cat({x, x}, 3).slice(3, 0, x.size(3)), group(), bits(), noise);
    EXPECT_EQ(codes_of(view), codes_of(rows));
  });
}

TEST_P(Quantizer, NearestIsHalfAScaleOffAtMost) {
  for_all_inputs(
      [&](const torch::Tensor& x) { EXPECT_LE(excess_error(x, quantise(x, group(), bits()), 0.5), 0); });
}

TEST_P(Quantizer, StochasticIsOneScaleOffAtMost) {
  for_all_inputs([&](const torch::Tensor& x) {
    EXPECT_LE(excess_error(x, quantise(x, group(), bits(), Noise::drawn({1, 2, 3})), 1), 0);
  });
}

TEST_P(Quantizer, DecodedValuesHaveTheSameCodesAgain) {
  for_all_inputs([&](const torch::Tensor& x) {
    const Range range = measure_range(x, group());
    const Quantized once = encode(x, range, bits());
    const torch::Tensor decoded = decode(once);
    EXPECT_EQ(codes_of(encode(decoded, range, bits())), codes_of(once));
    EXPECT_EQ(codes_of(quantise(decoded, group(), bits())), codes_of(once));
  });
}

TEST_P(Quantizer, HalvesRoundToEven) {
  // From 0 to the highest code, so that the scale is 1 and halves are exact; the same in every row.
  const int top = std::min((1 << bits()) - 1, 4001);
  const auto highest = static_cast<float>((1 << bits()) - 1);
  std::vector<float> values{0, highest};
  for (int i = 0; i < top; ++i) values.push_back(static_cast<float>(i) + 0.5f);
  const torch::Tensor row = torch::tensor(values);
  const Quantized q = quantise(torch::stack({row, row}), group(), bits());
  ASSERT_EQ(q.scale[0].item<float>(), 1.0f);
  for (int i = 0; i < top; ++i) {
    const int even = i % 2 == 0 ? i : i + 1;
    ASSERT_EQ(q.code[1][i + 2].item<int>(), even) << i << ".5";
  }
}

TEST_P(Quantizer, NotFiniteMakesTheGroupNan) {
  for (const std::int64_t length : {1, 65, 4097, 10000}) {
    for (const std::int64_t place : {std::int64_t{0}, length / 2, length - 1}) {
      for (const float bad : {kNan, kInfinity, -kInfinity}) {
        SCOPED_TRACE(testing::Message() << bad << " at " << place << " of " << length);
        const torch::Tensor clean = normal({3, length}, 7);
        torch::Tensor x = clean.clone();
        x[1][place] = bad;
        for (const Noise& noise : {Noise::none(), Noise::drawn({1, 2, 3})}) {
          const torch::Tensor decoded = decode(quantise(x, group(), bits(), noise));
          if (group() == RangeGroup::kTensor) {
            EXPECT_TRUE(decoded.isnan().all().item<bool>());
          } else {
            const torch::Tensor expected = decode(quantise(clean, group(), bits(), noise));
            EXPECT_TRUE(decoded[1].isnan().all().item<bool>());
            EXPECT_TRUE(same(decoded[0], expected[0]));
            EXPECT_TRUE(same(decoded[2], expected[2]));
          }
        }
      }
    }
  }
}

TEST_P(Quantizer, ValuesBeyondAGivenRangeAreClamped) {
  const Range range{torch::tensor({-1.0f}), torch::tensor({2.0f})};
  const torch::Tensor x = torch::tensor({-1e30f, -1.5f, -1.0f, 1.0f, 1.5f, 1e30f});
  const std::int32_t top = (1 << bits()) - 1;
  EXPECT_EQ(codes_of(encode(x, range, bits())), (std::vector<std::int32_t>{0, 0, 0, top, top, top}));
}

std::string name_of(const testing::TestParamInfo<BitsAndGroup>& info) {
  return std::to_string(std::get<0>(info.param)) +
         (std::get<1>(info.param) == RangeGroup::kRow ? "BitsByRow" : "BitsByTensor");
}

INSTANTIATE_TEST_SUITE_P(Bits, Quantizer,
                         testing::Combine(testing::Values(2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
                                                          20),
                                          testing::Values(RangeGroup::kTensor, RangeGroup::kRow)),
                         name_of);

TEST(QuantizerFloatBits, ReturnTheValuesUntouched) {
  for (const int bits : {0, 24, 32}) {
    for (const auto& shape : kShapes) {
      torch::Tensor x = normal(shape, 3);
      x.flatten()[0] = -0.0f;
      const Quantized q = encode(x, {}, bits, Noise::drawn({1, 2, 3}));
      EXPECT_EQ(q.bits, 0);
      EXPECT_TRUE(same(q.code, x));
      EXPECT_TRUE(same(decode(q), x));
    }
  }
}

TEST(QuantizerRange, IsMinimumAndDistanceToMaximum) {
  const torch::Tensor x = torch::tensor({{1.0f, -2.0f, 0.5f}, {4.0f, 4.0f, 4.0f}});
  const Range whole = measure_range(x, RangeGroup::kTensor), rows = measure_range(x, RangeGroup::kRow);
  EXPECT_EQ(numbers_of(whole.min), (std::vector<float>{-2}));
  EXPECT_EQ(numbers_of(whole.range), (std::vector<float>{6}));
  EXPECT_EQ(numbers_of(rows.min), (std::vector<float>{-2, 4}));
  EXPECT_EQ(numbers_of(rows.range), (std::vector<float>{3, 0}));
}

TEST(QuantizerRange, TheNumberOfThreadsDoesNotMatter) {
  const torch::Tensor x = normal({37, 5003}, 5);
  for (const RangeGroup group : {RangeGroup::kTensor, RangeGroup::kRow}) {
    expect_independent_of_threads([&] {
      const Range range = measure_range(x, group);
      return torch::cat({range.min, range.range});
    });
  }
}

TEST(ChunkEncoder, MakesTheCodesOfTheWholeWhereverItIsCut) {
  const torch::Tensor x = normal({10'007}, 5);
  const Range range = measure_range(x, RangeGroup::kTensor);
  for (const Noise& noise : {Noise::none(), Noise::drawn({3, 4, 5})}) {
    for (const int bits : {8, 5, 1}) {
      const Quantized whole = encode(x, range, bits, noise);
      const ChunkEncoder encoder(x, range, {bits, noise});
      for (const auto& [first, n] :
           {std::pair{9'000, 1'007}, std::pair{0, 1}, std::pair{1, 127}, std::pair{128, 8'872}}) {
        encoder.encode(x.data_ptr<float>() + first, first, n);
      }
      EXPECT_TRUE(same(encoder.codes().code, whole.code)) << bits << " bits";
      EXPECT_TRUE(same(encoder.codes().scale, whole.scale));
    }
  }
}

TEST(QuantizerMisuse, IsABrokenInvariant) {
  const torch::Tensor x = normal({4, 3}, 1);
  EXPECT_THROW(measure_range(torch::empty({0}), RangeGroup::kTensor), std::logic_error);
  EXPECT_THROW(measure_range(x.to(torch::kDouble), RangeGroup::kTensor), std::logic_error);
  EXPECT_THROW(encode(x, measure_range(x, RangeGroup::kTensor), -1), std::logic_error);
  EXPECT_THROW(encode(x, {torch::zeros({3}), torch::ones({3})}, 8), std::logic_error);
}

}  // namespace
}  // namespace lowtide
