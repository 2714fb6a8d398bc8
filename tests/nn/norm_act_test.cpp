#include "lowtide/nn/norm_act.h"

#include <gtest/gtest.h>

#include "tests/testing.h"

namespace lowtide {
namespace {

struct Result {
  torch::Tensor y, dx, dresidual, dweight, dbias, mean, variance;
};

// The same operation by libtorch in double precision.
Result reference(const NormActImpl& norm, const torch::Tensor& input, const torch::Tensor& residual_input,
                 const torch::Tensor& error, bool training) {
  const auto leaf = [](const torch::Tensor& t) {
    return t.detach().to(torch::kDouble).clone().requires_grad_();
  };
  const torch::Tensor x = leaf(input), weight = leaf(norm.weight), bias = leaf(norm.bias);
  const torch::Tensor residual = residual_input.defined() ? leaf(residual_input) : torch::Tensor();
  const torch::Tensor mean = norm.running_mean.to(torch::kDouble).clone();
  const torch::Tensor variance = norm.running_variance.to(torch::kDouble).clone();
  torch::Tensor y = torch::batch_norm(x, weight, bias, mean, variance, training, 0.1, 1e-5, false);
  if (residual.defined()) y = y + residual;
  if (norm.options.relu) y = y.relu();
  y.backward(error.to(torch::kDouble));
  return {y.detach(),    x.grad(),    residual.defined() ? residual.grad() : torch::Tensor(),
          weight.grad(), bias.grad(), mean,
          variance};
}

Result run(NormActImpl& norm, const torch::Tensor& input, const torch::Tensor& residual_input,
           const torch::Tensor& error) {
  norm.zero_grad();
  const torch::Tensor x = input.clone().requires_grad_();
  const torch::Tensor residual =
      residual_input.defined() ? residual_input.clone().requires_grad_() : torch::Tensor();
  const torch::Tensor y = norm.forward(x, residual);
  y.backward(error);
  return {y.detach(),
          x.grad(),
          residual.defined() ? residual.grad() : torch::Tensor(),
          norm.weight.grad().clone(),
          norm.bias.grad().clone(),
          norm.running_mean.clone(),
          norm.running_variance.clone()};
}

NormAct make_norm(std::int64_t channels, bool relu) {
  NormAct norm(NormActOptions{channels, relu});
  const torch::NoGradGuard no_grad;
  norm->weight.copy_(uniform({channels}, 0.5, 2, 1));
  norm->bias.copy_(normal({channels}, 2));
  norm->running_mean.copy_(normal({channels}, 3));
  norm->running_variance.copy_(uniform({channels}, 0.5, 2, 4));
  return norm;
}

// Shapes of one chunk of sums (16,384 elements) and of several, of one channel, of more channels than a
// chunk has elements, and of one image.
const std::vector<std::vector<std::int64_t>> kShapes{{4, 3, 5, 5},    {1, 8, 7, 3},     {3, 1, 4, 4},
                                                     {16, 8, 33, 31}, {1, 1, 200, 200}, {2, 20000, 1, 2},
                                                     {7, 64, 2, 1}};

class NormActShapes : public testing::TestWithParam<std::tuple<std::vector<std::int64_t>, bool, bool>> {
 protected:
  const std::vector<std::int64_t> shape_ = std::get<0>(GetParam());
  NormAct norm_ = make_norm(shape_[1], std::get<1>(GetParam()));
  const torch::Tensor x_ = normal(shape_, 5) * 2 + 1;
  const torch::Tensor residual_ = std::get<2>(GetParam()) ? normal(shape_, 6) : torch::Tensor();
  const torch::Tensor error_ = normal(shape_, 7);

  void expect_reference(bool training) {
    const Result expected = reference(*norm_, x_, residual_, error_, training);
    const Result actual = run(*norm_, x_, residual_, error_);
    // A deviation is known to about 1e-6 after float32 sums of up to 16,384 squares; an output that is just
    // around 0 may fall on the other side of the ReLU, but is then that small itself.
    constexpr double kTolerance = 1e-5;
    EXPECT_TRUE(close_to(actual.y, expected.y, kTolerance));
    EXPECT_TRUE(close_to(actual.dx, expected.dx, kTolerance));
    if (residual_.defined()) {
      EXPECT_TRUE(close_to(actual.dresidual, expected.dresidual, kTolerance));
    }
    EXPECT_TRUE(close_to(actual.dweight, expected.dweight, kTolerance));
    EXPECT_TRUE(close_to(actual.dbias, expected.dbias, kTolerance));
    EXPECT_TRUE(close_to(actual.mean, expected.mean, kTolerance));
    EXPECT_TRUE(close_to(actual.variance, expected.variance, kTolerance));
  }
};

TEST_P(NormActShapes, Training) { expect_reference(true); }

TEST_P(NormActShapes, Evaluation) {
  norm_->eval();
  const torch::Tensor mean = norm_->running_mean.clone(), variance = norm_->running_variance.clone();
  expect_reference(false);
  EXPECT_TRUE(same(norm_->running_mean, mean));
  EXPECT_TRUE(same(norm_->running_variance, variance));
}

TEST_P(NormActShapes, LayoutDoesNotMatter) {
  const auto last = [](const torch::Tensor& t) {
    return t.defined() ? t.contiguous(torch::MemoryFormat::ChannelsLast) : t;
  };
  NormAct other = make_norm(shape_[1], norm_->options.relu);
  const Result rows = run(*norm_, x_, residual_, error_);
  const Result channels_last = run(*other, last(x_), last(residual_), last(error_));
  EXPECT_TRUE(same(rows.y, channels_last.y));
  EXPECT_TRUE(same(rows.dx, channels_last.dx));
  EXPECT_TRUE(same(rows.dweight, channels_last.dweight));
}

INSTANTIATE_TEST_SUITE_P(Shapes, NormActShapes,
                         testing::Combine(testing::ValuesIn(kShapes), testing::Bool(), testing::Bool()));

TEST(NormAct, TheNumberOfThreadsDoesNotMatter) {
  const std::vector<std::int64_t> shape{16, 8, 33, 31};
  const torch::Tensor x = normal(shape, 5), residual = normal(shape, 6), error = normal(shape, 7);
  expect_independent_of_threads([&] {
    NormAct norm = make_norm(8, true);
    const Result r = run(*norm, x, residual, error);
    return torch::cat(
        {r.y.flatten(), r.dx.flatten(), r.dresidual.flatten(), r.dweight, r.dbias, r.mean, r.variance});
  });
}

// A mean far above the deviation is where sums of squares, and sums of large numbers, lose their digits.
TEST(NormAct, LargeMeanWithSmallDeviation) {
  for (const auto& shape :
       std::vector<std::vector<std::int64_t>>{{8, 4, 16, 16}, {16, 1, 64, 64}, {32, 3, 50, 50}}) {
    SCOPED_TRACE(testing::Message() << torch::IntArrayRef(shape));
    const torch::Tensor x = normal(shape, 5) * 0.01 + 1000;
    const torch::Tensor error = normal(shape, 7);
    NormAct norm(NormActOptions{shape[1], false});
    norm->running_mean.zero_();
    norm->running_variance.zero_();
    const Result expected = reference(*norm, x, {}, error, true);
    const Result actual = run(*norm, x, {}, error);
    // The mean is kept in float32, whose numbers near 1000 lie 2^-14 = 6e-5 apart: it is off by 3e-5 at most,
    // 0.3 % of the deviation (0.29 % of sqrt(variance + eps)), and the output by as much; no sum may add to
    // that. Outputs reach 3 to 5. The variance moves by the square of that, 1e-5 of itself.
    const double shift = 0x1p-15 / std::sqrt(1e-4 + 1e-5);
    EXPECT_LE((actual.y - expected.y).abs().max().item<double>(), 1.1 * shift);
    EXPECT_TRUE(close_to(actual.variance, expected.variance, 1e-4));
    // 0.1 of a mean of 1000, in two roundings.
    EXPECT_TRUE(close_to(actual.mean, expected.mean, 2e-7));
    EXPECT_TRUE(close_to(actual.dx, expected.dx, 1e-3));
    EXPECT_TRUE(close_to(actual.dbias, expected.dbias, 1e-5));
  }
}

TEST(NormAct, OneElementAChannelIsItsOwnMean) {
  NormAct norm = make_norm(5, false);
  const torch::Tensor mean = norm->running_mean.clone(), variance = norm->running_variance.clone();
  const torch::Tensor x = normal({1, 5, 1, 1}, 1);
  const Result result = run(*norm, x, {}, torch::ones({1, 5, 1, 1}));
  EXPECT_TRUE(same(result.y.flatten(), norm->bias.detach()));
  EXPECT_TRUE(same(result.dx, torch::zeros_like(x)));
  EXPECT_TRUE(same(result.dweight, torch::zeros({5})));
  EXPECT_TRUE(same(result.dbias, torch::ones({5})));
  EXPECT_TRUE(close_to(result.mean, 0.9 * mean + 0.1 * x.flatten(), 1e-6));
  EXPECT_TRUE(close_to(result.variance, 0.9 * variance, 1e-6));
}

TEST(NormAct, NotFiniteInputGivesNoFiniteOutput) {
  NormAct norm(NormActOptions{.channels = 2, .relu = false});
  torch::Tensor x = normal({3, 2, 4, 4}, 1);
  x[1][1][2][3] = std::numeric_limits<float>::quiet_NaN();
  const torch::Tensor y = norm(x);
  EXPECT_TRUE(y.select(1, 0).isfinite().all().item<bool>());
  EXPECT_TRUE(y.select(1, 1).isnan().all().item<bool>());
}

TEST(NormAct, ReEstimationGivesPlainMeans) {
  NormAct norm = make_norm(3, true);
  const auto batch = [](int i) { return normal({6, 3, 5, 5}, 50 + i) * (i + 1) + i; };
  norm(batch(9));  // what was before does not count
  norm->start_re_estimation();
  torch::Tensor mean = torch::zeros({3}, torch::kDouble), variance = mean.clone();
  for (int i = 0; i < 4; ++i) {
    const torch::Tensor x = batch(i).to(torch::kDouble);
    norm(batch(i));
    mean += x.mean({0, 2, 3}) / 4;
    variance += x.var({0, 2, 3}, /*unbiased=*/true) / 4;
  }
  norm->eval();
  norm(batch(8));  // an evaluation in between is no batch
  norm->train();
  EXPECT_TRUE(close_to(norm->running_mean, mean, 1e-6));
  EXPECT_TRUE(close_to(norm->running_variance, variance, 1e-6));
  norm->end_re_estimation();
  norm(batch(0));  // moves by a tenth again
  EXPECT_TRUE(
      close_to(norm->running_mean, 0.9 * mean + 0.1 * batch(0).to(torch::kDouble).mean({0, 2, 3}), 1e-6));
}

}  // namespace
}  // namespace lowtide
