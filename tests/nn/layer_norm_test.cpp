#include "lowtide/nn/layer_norm.h"

#include "tests/testing.h"

namespace lowtide {
namespace {

struct Passed {
  torch::Tensor y, dx, dw, db;
};

template <typename Forward>
Passed pass(const torch::Tensor& x, const torch::Tensor& dy, const Forward& forward) {
  const torch::Tensor in = x.clone().requires_grad_();
  const torch::Tensor w = normal({x.size(-1)}, 3).requires_grad_(),
                      b = normal({x.size(-1)}, 4).requires_grad_();
  const torch::Tensor y = forward(in, w, b);
  y.backward(dy);
  return {y.detach(), in.grad(), w.grad(), b.grad()};
}

torch::Tensor ours(const torch::Tensor& x, const torch::Tensor& w, const torch::Tensor& b) {
  LayerNorm layer(x.size(-1), 1e-5);
  layer->weight = w;
  layer->bias = b;
  return layer->forward(x);
}

// In float64 by the definition, differentiated by autograd.
torch::Tensor written_out(const torch::Tensor& x, const torch::Tensor& w, const torch::Tensor& b) {
  const torch::Tensor wide = x.to(torch::kDouble);
  const torch::Tensor centred = wide - wide.mean(-1, true);
  const torch::Tensor y = centred / (centred.pow(2).mean(-1, true) + 1e-5).sqrt();
  return (y * w + b).to(torch::kFloat);
}

TEST(LayerNorm, ValuesAndGradients) {
  for (const std::vector<std::int64_t>& sizes :
       {std::vector<std::int64_t>{1, 1, 4}, {2, 3, 5}, {4, 7, 64}, {3, 24}}) {
    const torch::Tensor x = normal(sizes, 1) * 2 + 1, dy = normal(sizes, 2);
    const Passed a = pass(x, dy, ours), b = pass(x, dy, written_out);
    // Sums of at most 64 float32 terms; the gradient is a difference of such.
    EXPECT_TRUE(close_to(a.y, b.y, 1e-5));
    EXPECT_TRUE(close_to(a.dx, b.dx, 1e-4));
    EXPECT_TRUE(close_to(a.dw, b.dw, 1e-5));
    EXPECT_TRUE(close_to(a.db, b.db, 1e-5));
  }
}

TEST(LayerNorm, OfAResidualIsThatOfTheSum) {
  LayerNorm norm(12, 1e-5);
  const auto dropout = [] {  // that has not been called yet
    Dropout fresh(0.4);
    fresh->attach(std::make_shared<Execution>(), "dropout", 1);
    return fresh;
  };
  const torch::Tensor x = normal({5, 12}, 1), added = normal({5, 12}, 2);
  EXPECT_TRUE(same(norm->forward(x, added, dropout()), norm->forward(x + dropout()->forward(added))));
}

TEST(LayerNorm, GradientsDoNotDependOnTheNumberOfThreads) {
  const torch::Tensor x = normal({64, 40, 96}, 1), dy = normal({64, 40, 96}, 2);
  expect_independent_of_threads([&] {
    const Passed passed = pass(x, dy, ours);
    return torch::cat({passed.dx.flatten(), passed.dw, passed.db});
  });
}

}  // namespace
}  // namespace lowtide
