#include "lowtide/base/error.h"
#include "lowtide/engine/engine.h"
#include "tests/engine/on_engine_device.h"
#include "tests/testing.h"

namespace lowtide {
namespace {

// Rows with many entries, one, the same twice, none.
SparseRows small_matrix() {
  return {torch::tensor({0, 5, 6, 8, 8}, torch::kInt64),
          torch::tensor({0, 2, 3, 5, 6, 4, 1, 1}, torch::kInt32),
          7,
          {},
          {},
          {}};
}

torch::Tensor naive(const SparseRows& matrix, const torch::Tensor& features) {
  const torch::Tensor x = features.to(torch::kDouble);
  torch::Tensor y = torch::zeros({matrix.rows(), x.size(1)}, torch::kDouble);
  const auto offsets = matrix.offsets.accessor<std::int64_t, 1>();
  const auto indices = matrix.indices.accessor<std::int32_t, 1>();
  for (std::int64_t i = 0; i < matrix.rows(); ++i) {
    for (std::int64_t e = offsets[i]; e < offsets[i + 1]; ++e) {
      torch::Tensor row = x[indices[e]].clone();
      if (matrix.weights.defined()) {
        const torch::Tensor weight = matrix.weights[e].to(torch::kDouble);
        row = weight.dim() == 0 ? row * weight
                                : (row.view({weight.size(0), -1}) * weight.unsqueeze(1)).flatten();
      }
      if (matrix.column_factor.defined()) row *= matrix.column_factor[indices[e]].to(torch::kDouble);
      if (matrix.row_factor.defined()) row *= matrix.row_factor[i].to(torch::kDouble);
      y[i] += row;
    }
  }
  return y;
}

class EngineAggregate : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!can_run(*engine_)) GTEST_SKIP() << "no CUDA device";
  }
  torch::Tensor aggregate(SparseRows matrix, const Quantized& features) const {
    for (torch::Tensor* part :
         {&matrix.offsets, &matrix.indices, &matrix.weights, &matrix.row_factor, &matrix.column_factor})
      if (part->defined()) *part = part->to(device_of(*engine_));
    return engine_->aggregate(matrix, on_device_of(*engine_, features)).cpu();
  }

  const std::shared_ptr<const Engine> engine_ = make_engine(GetParam());
};

TEST_P(EngineAggregate, IsTheSumOverEntries) {
  for (const std::int64_t width : {1, 6, 64, 130}) {
    const torch::Tensor x = normal({7, width}, 1) + 0.5;
    for (const int bits : {0, 3, 8, 12}) {
      for (const RangeGroup group : {RangeGroup::kRow, RangeGroup::kTensor}) {
        const Quantized features = encode(x, measure_range(x, group), bits);
        for (int with = 0; with < 8; ++with) {
          SparseRows matrix = small_matrix();
          if ((with & 1) != 0) matrix.weights = normal({8}, 2);
          if ((with & 2) != 0) matrix.row_factor = normal({4}, 3);
          if ((with & 4) != 0) matrix.column_factor = normal({7}, 4);
          // Five roundings a term, sums of five terms.
          EXPECT_TRUE(close_to(aggregate(matrix, features), naive(matrix, decode(features)), 3e-6))
              << width << " features of " << bits << " bits, factors " << with;
        }
      }
    }
  }
}

TEST_P(EngineAggregate, HeadsWeighTheirShareOfTheFeatures) {
  const torch::Tensor x = normal({7, 12}, 1);
  for (const int bits : {0, 8}) {
    const Quantized features = encode(x, measure_range(x, RangeGroup::kRow), bits);
    SparseRows matrix = small_matrix();
    matrix.weights = normal({8, 3}, 2);
    EXPECT_TRUE(close_to(aggregate(matrix, features), naive(matrix, decode(features)), 3e-6));
  }
}

TEST_P(EngineAggregate, ThreadsChangeNothing) {
  // 3,000 rows of which one has a third of the entries.
  std::vector<std::int64_t> offsets{0};
  std::vector<std::int32_t> indices;
  for (std::int32_t i = 0; i < 3000; ++i) {
    for (std::int32_t e = 0; e < (i == 100 ? 10'000 : i % 13); ++e) indices.push_back((i * 7 + e * 31) % 500);
    offsets.push_back(static_cast<std::int64_t>(indices.size()));
  }
  const SparseRows matrix{torch::tensor(offsets), torch::tensor(indices, torch::kInt32), 500, {}, {}, {}};
  const torch::Tensor x = normal({500, 33}, 5);
  for (const int bits : {0, 8}) {
    const Quantized features = encode(x, measure_range(x, RangeGroup::kRow), bits);
    expect_independent_of_threads([&] { return aggregate(matrix, features); });
  }
}

TEST_P(EngineAggregate, NotANumberStaysOne) {
  torch::Tensor x = normal({7, 4}, 1);
  x[2][1] = std::numeric_limits<float>::quiet_NaN();
  for (const int bits : {0, 8}) {
    const torch::Tensor y = aggregate(small_matrix(), encode(x, measure_range(x, RangeGroup::kRow), bits));
    EXPECT_TRUE(torch::isnan(y[0]).any().item<bool>()) << "gathers from row 2";
    EXPECT_FALSE(torch::isnan(y[1]).any().item<bool>()) << "does not";
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, EngineAggregate, testing::ValuesIn(engine_names()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace lowtide
