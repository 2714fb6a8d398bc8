#include "lowtide/nn/quant_product.h"

#include "lowtide/quant/quantizer.h"
#include "tests/testing.h"

namespace lowtide {
namespace {

// Rounded by the formula, with a range for each row over the last dimension.
torch::Tensor rounded(const torch::Tensor& x, int bits) {
  const torch::Tensor low = std::get<0>(x.min(-1, true)), high = std::get<0>(x.max(-1, true));
  const torch::Tensor scale = ((high - low) / ((1 << bits) - 1)).clamp_min(1e-8);
  return torch::round((x - low) / scale) * scale + low;
}

// The same for the error, whose rows share a range with those at the same place of the other items.
torch::Tensor rounded_error(const torch::Tensor& dy, std::int64_t items, int bits) {
  const torch::Tensor places = dy.view({items, -1, dy.size(2)}).transpose(0, 1);  // place × item × column
  const torch::Tensor rows = rounded(places.reshape({places.size(0), -1}), bits);
  return rows.view(places.sizes()).transpose(0, 1).reshape(dy.sizes());
}

struct Passed {
  torch::Tensor y, da, db;
};

Passed pass(const torch::Tensor& a, const torch::Tensor& b, const torch::Tensor& dy, Bits bits,
            std::int64_t items = 1) {
  QuantProduct layer;
  layer->attach(execution_at(bits), "product", 0);
  const torch::Tensor left = a.clone().requires_grad_(), right = b.clone().requires_grad_();
  const torch::Tensor y = layer->forward(left, right, items);
  y.backward(dy);
  return {y.detach(), left.grad(), right.grad()};
}

class QuantLayerProduct : public testing::TestWithParam<std::vector<std::int64_t>> {
 protected:
  // n, rows, terms, columns
  const torch::Tensor a_ = normal({GetParam()[0], GetParam()[1], GetParam()[2]}, 1) + 0.5;
  const torch::Tensor b_ = normal({GetParam()[0], GetParam()[2], GetParam()[3]}, 2) * 3;
  const torch::Tensor dy_ = normal({GetParam()[0], GetParam()[1], GetParam()[3]}, 3) * 0.01;
};

TEST_P(QuantLayerProduct, EqualsTheFormula) {
  for (const int bits : {3, 5, 8}) {
    const std::int64_t items = GetParam()[0] % 3 == 0 ? 3 : 1;
    const Passed passed = pass(a_, b_, dy_, {bits, 8}, items);
    const torch::Tensor a = rounded(a_, bits), b = rounded(b_, bits), dy = rounded_error(dy_, items, 8);
    // Sums of at most 40 float32 products in another order, of values up to one rounding from each other.
    EXPECT_TRUE(close_to(passed.y, a.matmul(b), 1e-5)) << bits;
    EXPECT_TRUE(close_to(passed.da, dy.matmul(b.transpose(1, 2)), 1e-5)) << bits;
    EXPECT_TRUE(close_to(passed.db, a.transpose(1, 2).matmul(dy), 1e-5)) << bits;
  }
}

TEST_P(QuantLayerProduct, FullPrecisionIsThePlainProduct) {
  const Passed passed = pass(a_, b_, dy_, {0, 0});
  EXPECT_TRUE(same(passed.y, a_.matmul(b_)));
  EXPECT_TRUE(close_to(passed.da, dy_.matmul(b_.transpose(1, 2)), 1e-6));
  EXPECT_TRUE(close_to(passed.db, a_.transpose(1, 2).matmul(dy_), 1e-6));
}

TEST_P(QuantLayerProduct, DoesNotDependOnTheNumberOfThreads) {
  expect_independent_of_threads([&] {
    const Passed passed = pass(a_, b_, dy_, {5, 8});
    return torch::cat({passed.y.flatten(), passed.da.flatten(), passed.db.flatten()});
  });
}

INSTANTIATE_TEST_SUITE_P(Shapes, QuantLayerProduct,
                         testing::Values(std::vector<std::int64_t>{1, 1, 1, 1},
                                         std::vector<std::int64_t>{1, 4, 3, 2},
                                         std::vector<std::int64_t>{6, 1, 5, 7},
                                         std::vector<std::int64_t>{12, 40, 16, 40},
                                         std::vector<std::int64_t>{3, 33, 40, 17}));

}  // namespace
}  // namespace lowtide
