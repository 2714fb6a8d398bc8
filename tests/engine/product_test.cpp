#include <gtest/gtest.h>

#include "lowtide/base/error.h"
#include "lowtide/engine/engine.h"
#include "tests/engine/on_engine_device.h"
#include "tests/io/scratch.h"
#include "tests/testing.h"

namespace lowtide {
namespace {

using Sizes = std::vector<std::int64_t>;

// Batch dimensions, then rows, inner and columns of the product.
struct Extent {
  Sizes batch;
  std::int64_t rows, inner, columns;
};

std::ostream& operator<<(std::ostream& out, const Extent& e) {
  return out << torch::IntArrayRef(e.batch) << " of " << e.rows << " x " << e.inner << " x " << e.columns;
}

const std::vector<Extent> kExtents{
    {{}, 1, 1, 1},
    {{}, 1, 7, 5},
    {{}, 5, 1, 3},
    {{}, 9, 64, 1},
    {{}, 17, 33, 65},
    {{3}, 5, 7, 11},
    {{1}, 4, 4, 4},
    {{2, 3}, 5, 7, 11},
    {{2, 1}, 16, 8, 16},
    {{4}, 33, 65, 9},
    {{}, 40, 33, 18},
    // Of more rows than a tile's smallest number, and of whole pieces along the sum, for kernels that multiply bytes as they are.
    {{}, 70, 48, 195},
    {{}, 129, 16, 33},
};

torch::Tensor operand(const Sizes& batch, std::int64_t rows, std::int64_t columns, bool transposed,
                      double low, std::uint64_t seed) {
  Sizes sizes = batch;
  sizes.push_back(transposed ? columns : rows);
  sizes.push_back(transposed ? rows : columns);
  return uniform(sizes, low, low + 2, seed);
}

Quantized quantised(const torch::Tensor& values, RangeGroup group, int bits) {
  return encode(values, measure_range(values, group), bits);
}

// With a range for each row of each matrix of a stack.
Quantized quantised_rows(const torch::Tensor& values, int bits) {
  const Quantized rows = quantised(values.reshape({-1, values.size(-1)}), RangeGroup::kRow, bits);
  return {rows.code.view(values.sizes()), rows.scale, rows.offset, rows.bits};
}

// One product by a plain loop in double precision.
torch::Tensor naive_matrix(const torch::Tensor& a, const torch::Tensor& b) {
  torch::Tensor y = torch::zeros({a.size(0), b.size(1)}, torch::kDouble);
  const auto left = a.accessor<double, 2>(), right = b.accessor<double, 2>();
  auto out = y.accessor<double, 2>();
  for (std::int64_t i = 0; i < a.size(0); ++i)
    for (std::int64_t j = 0; j < b.size(1); ++j)
      for (std::int64_t k = 0; k < a.size(1); ++k) out[i][j] += left[i][k] * right[k][j];
  return y;
}

torch::Tensor naive_product(const Quantized& a, const Quantized& b, const ProductShape& shape) {
  torch::Tensor left = decode(a).to(torch::kDouble), right = decode(b).to(torch::kDouble);
  if (shape.transpose_a) left = left.transpose(-2, -1);
  if (shape.transpose_b) right = right.transpose(-2, -1);
  Sizes sizes = left.sizes().vec();
  sizes.back() = right.size(-1);
  left = left.reshape({-1, left.size(-2), left.size(-1)});
  right = right.reshape({-1, right.size(-2), right.size(-1)});
  std::vector<torch::Tensor> products;
  for (std::int64_t i = 0; i < left.size(0); ++i) products.push_back(naive_matrix(left[i], right[i]));
  return torch::stack(products).view(sizes);
}

class EngineProduct : public testing::TestWithParam<std::tuple<std::string, Extent>> {
 protected:
  void SetUp() override {
    if (!can_run(*engine_)) GTEST_SKIP() << "no CUDA device";
  }
  torch::Tensor product(const Quantized& a, const Quantized& b, const ProductShape& shape) const {
    return engine_->product(on_device_of(*engine_, a), on_device_of(*engine_, b), shape).cpu();
  }

  const std::shared_ptr<const Engine> engine_ = make_engine(std::get<0>(GetParam()));
  const Extent extent_ = std::get<1>(GetParam());
};

TEST_P(EngineProduct, AllTransposesAndBits) {
  constexpr std::pair<int, int> kBits[] = {{8, 8}, {3, 6}, {12, 8}, {16, 16}, {0, 8}, {8, 0}, {0, 0}};
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      for (const double low : {-1.0, 3.0}) {
        const torch::Tensor a = operand(extent_.batch, extent_.rows, extent_.inner, transpose_a, low, 1);
        const torch::Tensor b = operand(extent_.batch, extent_.inner, extent_.columns, transpose_b, low, 2);
        for (const auto& [a_bits, b_bits] : kBits) {
          for (const RangeGroup group : {RangeGroup::kTensor, RangeGroup::kRow}) {
            SCOPED_TRACE(testing::Message() << "transposed " << transpose_a << transpose_b << ", " << a_bits
                                            << " and " << b_bits << " bits, values from " << low);
            const Quantized left = quantised(a, RangeGroup::kTensor, a_bits);
            const Quantized right = quantised(b, group, b_bits);
            const ProductShape shape{transpose_a, transpose_b};
            const torch::Tensor y = product(left, right, shape);
            EXPECT_EQ(y.scalar_type(), torch::kFloat);
            // As for convolutions: at most 65 products are summed, 1e-6.
            EXPECT_TRUE(close_to(y, naive_product(left, right, shape), 1e-5));
            // The range may also be by row on the left: a graph's features have one a node.
            const Quantized by_row = quantised(a, RangeGroup::kRow, a_bits);
            EXPECT_TRUE(close_to(product(by_row, right, shape), naive_product(by_row, right, shape), 1e-5));
            if (extent_.batch.empty() && !transpose_a) {
              const auto prepared = engine_->prepare(on_device_of(*engine_, right), transpose_b);
              EXPECT_TRUE(torch::equal(engine_->multiply(on_device_of(*engine_, left), *prepared).cpu(), y))
                  << "made ready once";
            }
          }
        }
      }
    }
  }
}

TEST_P(EngineProduct, LinearIsAProductPlusABias) {
  if (!extent_.batch.empty()) GTEST_SKIP() << "a stack";
  const torch::Tensor x = operand({}, extent_.rows, extent_.inner, false, -0.5, 1);
  const torch::Tensor w = operand({}, extent_.inner, extent_.columns, true, -1, 2);
  const torch::Tensor bias = uniform({extent_.columns}, -3, 3, 3);
  for (const auto& [x_bits, w_bits] : {std::pair{8, 8}, std::pair{3, 5}, std::pair{0, 0}, std::pair{12, 8}}) {
    const Quantized left = quantised(x, RangeGroup::kTensor, x_bits),
                    right = quantised(w, RangeGroup::kRow, w_bits);
    const torch::Tensor expected = naive_product(left, right, {.transpose_b = true});
    const auto linear = [&](const torch::Tensor& b) {
      return engine_->linear(on_device_of(*engine_, left), on_device_of(*engine_, right), b).cpu();
    };
    EXPECT_TRUE(close_to(linear({}), expected, 1e-5)) << x_bits << " and " << w_bits << " bits";
    EXPECT_TRUE(close_to(linear(bias.to(device_of(*engine_))), expected + bias, 1e-5))
        << x_bits << " and " << w_bits << " bits, with a bias";
  }
}

TEST_P(EngineProduct, StacksWithARangeForEachRow) {
  if (extent_.batch.size() != 1) GTEST_SKIP() << "not a stack";
  for (const ProductShape shape : {ProductShape{false, false}, {true, false}, {false, true}, {true, true}}) {
    for (const auto& [a_bits, b_bits] :
         {std::pair{8, 8}, std::pair{3, 8}, std::pair{0, 5}, std::pair{5, 0}}) {
      const torch::Tensor a =
          operand(extent_.batch, extent_.rows, extent_.inner, shape.transpose_a, -0.5, 1).pow(3);
      const torch::Tensor b =
          operand(extent_.batch, extent_.inner, extent_.columns, shape.transpose_b, -1, 2).pow(3);
      const Quantized left = quantised_rows(a, a_bits), right = quantised_rows(b, b_bits);
      EXPECT_TRUE(close_to(product(left, right, shape), naive_product(left, right, shape), 1e-5))
          << shape.transpose_a << shape.transpose_b << ", " << a_bits << " and " << b_bits << " bits";
    }
  }
}

// Sums as large as codes can make them: all the same, or of both signs, and as many as a wide layer has.
class ExtremeCodes : public testing::TestWithParam<std::string> {
 protected:
  const std::shared_ptr<const Engine> engine_ = make_engine(GetParam());
};

Quantized extreme(std::int64_t rows, std::int64_t columns, int first, int second, bool by_row) {
  torch::Tensor code = torch::full({rows, columns}, first, torch::kByte);
  code.flatten().slice(0, 1, c10::nullopt, 2).fill_(second);
  const std::int64_t ranges = by_row ? rows : 1;
  return {code, uniform({ranges}, 0.01, 0.02, 3), uniform({ranges}, -2, -1, 4), 8};
}

// What sums of so many terms of one sign may be off. Of integers: what turns them into a float. On tensor cores: they cut off
// what is below a sum's last digit, once for 16 terms. In floats: as many roundings as terms.
double bound(const std::string& engine, std::int64_t terms) {
  if (engine == "integer") return 4e-6;
  return static_cast<double>(terms) * (engine == "cuda" ? 0x1p-25 / 16 : 0x1p-24);
}

TEST_P(ExtremeCodes, LongSums) {
  if (!can_run(*engine_)) GTEST_SKIP() << "no CUDA device";
  constexpr std::int64_t kInner = 4608;
  for (const std::int64_t rows : {12, 70}) {  // of which a GPU's kernels for bytes take 70
    for (const auto& [first, second] : {std::pair{0, 0}, std::pair{255, 255}, std::pair{0, 255}}) {
      for (const auto& [transpose_a, transpose_b] :
           {std::pair{false, true}, std::pair{true, false}, std::pair{false, false}}) {
        for (const bool by_row : {false, true}) {
          const Quantized a =
              extreme(transpose_a ? kInner : rows, transpose_a ? rows : kInner, first, second, by_row);
          const Quantized b =
              extreme(transpose_b ? 9 : kInner, transpose_b ? kInner : 9, second, first, by_row);
          const ProductShape shape{transpose_a, transpose_b};
          const torch::Tensor y =
              engine_->product(on_device_of(*engine_, a), on_device_of(*engine_, b), shape).cpu();
          EXPECT_TRUE(close_to(y, naive_product(a, b, shape), bound(engine_->name(), kInner)))
              << rows << " rows of " << first << " and " << second << ", transposed " << transpose_a
              << transpose_b << (by_row ? ", by row" : "");
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, ExtremeCodes, testing::ValuesIn(engine_names()));

INSTANTIATE_TEST_SUITE_P(Engines, EngineProduct,
                         testing::Combine(testing::ValuesIn(engine_names()), testing::ValuesIn(kExtents)));

class NamedEngine : public testing::TestWithParam<std::string> {
 protected:
  const std::shared_ptr<const Engine> engine_ = make_engine(GetParam());
};

TEST_P(NamedEngine, KnowsItsName) { EXPECT_EQ(engine_->name(), GetParam()); }

TEST_P(NamedEngine, ProductsDoNotDependOnTheNumberOfThreads) {
  // A classifier's three products, a long inner dimension, and batches as attention has them.
  const std::vector<Extent> extents{
      {{}, 128, 512, 1000}, {{}, 3, 20000, 5}, {{}, 700, 65, 300}, {{16}, 64, 64, 64}};
  for (const Extent& e : extents) {
    for (const int bits : {8, 0}) {
      for (const ProductShape shape :
           {ProductShape{false, false}, {true, false}, {false, true}, {true, true}}) {
        SCOPED_TRACE(testing::Message()
                     << e << ", " << bits << " bits, transposed " << shape.transpose_a << shape.transpose_b);
        const Quantized a =
            quantised(operand(e.batch, e.rows, e.inner, shape.transpose_a, -1, 1), RangeGroup::kTensor, bits);
        const Quantized b = quantised(operand(e.batch, e.inner, e.columns, shape.transpose_b, -1, 2),
                                      RangeGroup::kTensor, bits);
        expect_independent_of_threads([&] { return engine_->product(a, b, shape); });
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, NamedEngine, testing::ValuesIn(engine_names()));

TEST(MakeEngine, AnUnknownNameIsToldThoseThereAre) {
  const std::string message = user_error([] { make_engine("imaginary"); });
  EXPECT_TRUE(contains(message, "'imaginary'"));
  for (const std::string& name : engine_names()) EXPECT_TRUE(contains(message, name));
}

}  // namespace
}  // namespace lowtide
