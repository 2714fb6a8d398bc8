#include "lowtide/nn/quant_lstm.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/rnn.h>

#include "lowtide/nn/dropout.h"
#include "tests/testing.h"

namespace lowtide {
namespace {

constexpr std::int64_t kTime = 6, kBatch = 3, kInputs = 10, kUnits = 7;

class QuantLstms : public testing::Test {
 protected:
  QuantLstms() {
    execution_->engine = engine_under_test();
    execution_->seed = 42;
    layer_.attach(execution_, "lstm", 1);
    const torch::NoGradGuard no_grad;
    std::uint64_t seed = 100;
    for (auto& parameter : layer_.parameters()) parameter.copy_(normal(parameter.sizes(), seed++) * 0.3);
  }

  struct Result {
    torch::Tensor y, dx;
    std::vector<torch::Tensor> gradients;
  };
  Result run() {
    layer_.zero_grad();
    const torch::Tensor x = x_.clone().requires_grad_();
    const LstmOutput output = layer_.forward(x, state_);
    output.hidden.backward(error_);
    Result result{output.hidden.detach(), x.grad(), {}};
    for (const auto& parameter : layer_.parameters()) result.gradients.push_back(parameter.grad().clone());
    return result;
  }

  const torch::Tensor x_ = normal({kTime, kBatch, kInputs}, 1), error_ = normal({kTime, kBatch, kUnits}, 2);
  const LstmState state_{normal({kBatch, kUnits}, 3) * 0.5, normal({kBatch, kUnits}, 4) * 0.5};
  QuantLstmImpl layer_{{kInputs, kUnits}};
  std::shared_ptr<Execution> execution_ = std::make_shared<Execution>();
};

TEST_F(QuantLstms, InFullPrecisionItIsTorchsLstm) {
  torch::nn::LSTM theirs(torch::nn::LSTMOptions(kInputs, kUnits));
  {
    const torch::NoGradGuard no_grad;
    auto parameters = theirs->named_parameters();
    parameters["weight_ih_l0"].copy_(layer_.input_weight);
    parameters["weight_hh_l0"].copy_(layer_.hidden_weight);
    parameters["bias_ih_l0"].copy_(layer_.bias);
    parameters["bias_hh_l0"].zero_();
  }
  const torch::Tensor x = x_.clone().requires_grad_();
  const auto [y, last] =
      theirs->forward(x, std::make_tuple(state_.hidden.unsqueeze(0), state_.cell.unsqueeze(0)));
  y.backward(error_);
  const Result ours = run();
  constexpr double kTolerance = 1e-5;  // sums of ten float32 products in another order, six steps deep
  EXPECT_TRUE(close_to(ours.y, y.detach(), kTolerance));
  EXPECT_TRUE(close_to(ours.dx, x.grad(), kTolerance));
  auto expected = theirs->named_parameters();
  EXPECT_TRUE(close_to(layer_.input_weight.grad(), expected["weight_ih_l0"].grad(), kTolerance));
  EXPECT_TRUE(close_to(layer_.hidden_weight.grad(), expected["weight_hh_l0"].grad(), kTolerance));
  EXPECT_TRUE(close_to(layer_.bias.grad(), expected["bias_ih_l0"].grad(), kTolerance));
  const LstmOutput output = layer_.forward(x_, state_);
  EXPECT_TRUE(close_to(output.last.cell, std::get<1>(last)[0].detach(), kTolerance));
  EXPECT_FALSE(output.last.hidden.requires_grad()) << "back-propagation is truncated";
}

// An encoder's last state that a decoder begins with: gradients pass from one to the other as if they were one.
TEST_F(QuantLstms, GradientsPassThroughStates) {
  const LstmParameters parameters{layer_.input_weight, layer_.bias, layer_.hidden_weight};
  LstmRanges ranges;
  const auto gradients = [&](bool in_parts) {
    layer_.zero_grad();
    const torch::Tensor x = x_.clone().requires_grad_();
    const LstmState state{state_.hidden.clone().requires_grad_(), state_.cell.clone().requires_grad_()};
    LstmOutput output;
    if (in_parts) {
      const LstmOutput first = quant_lstm(layer_, x.narrow(0, 0, 2), parameters, state, ranges, true);
      output = quant_lstm(layer_, x.narrow(0, 2, kTime - 2), parameters, first.last, ranges, true);
    } else {
      output = quant_lstm(layer_, x, parameters, state, ranges, true);
    }
    (output.last.hidden.sum() + 2 * output.last.cell.sum()).backward();
    return std::vector{x.grad(),
                       state.hidden.grad(),
                       state.cell.grad(),
                       layer_.input_weight.grad().clone(),
                       layer_.hidden_weight.grad().clone(),
                       layer_.bias.grad().clone()};
  };
  const auto whole = gradients(false), parts = gradients(true);
  // Float32 sums of ten products in another order, six steps deep.
  for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_TRUE(close_to(parts[i], whole[i], 1e-5)) << i;
  EXPECT_GT(whole[1].abs().min().item<float>(), 0) << "of the first hidden state";
}

TEST_F(QuantLstms, AWindowIsItsPartsOneAfterTheOther) {
  execution_->bits = {6, 8};
  const torch::NoGradGuard no_grad;
  const LstmOutput whole = layer_.forward(x_, state_);
  const LstmOutput first = layer_.forward(x_.narrow(0, 0, 2), state_);
  const LstmOutput second = layer_.forward(x_.narrow(0, 2, kTime - 2), first.last);
  // Some BLAS kernels sum in another order when there are fewer rows.
  EXPECT_TRUE(close_to(torch::cat({first.hidden, second.hidden}), whole.hidden, 1e-6));
  EXPECT_TRUE(close_to(second.last.cell, whole.last.cell, 1e-6));
}

TEST_F(QuantLstms, NoiseIsTheSameAgainAndAnotherInTheNextStep) {
  execution_->bits = {8, 4};
  const Result first = run();
  execution_->step = 1;
  const Result other = run();
  execution_->step = 0;
  const Result again = run();
  EXPECT_TRUE(torch::equal(first.gradients[0], again.gradients[0]));
  EXPECT_FALSE(torch::equal(first.gradients[0], other.gradients[0]));
}

TEST_F(QuantLstms, ANanIsSeen) {
  execution_->bits = {8, 8};
  const torch::Tensor x = x_.clone();
  x[2][1][3] = std::nanf("");
  const torch::NoGradGuard no_grad;
  EXPECT_TRUE(torch::isnan(layer_.forward(x, state_).hidden).any().item<bool>());
}

TEST(Dropouts, KeepTheExpectationAndDrawAnewInEveryCall) {
  const auto execution = std::make_shared<Execution>();
  DropoutImpl dropout(0.3);
  dropout.attach(execution, "dropout", 5);
  const torch::Tensor x = torch::ones({400, 250});
  const torch::Tensor first = dropout.forward(x), second = dropout.forward(x);
  EXPECT_FALSE(torch::equal(first, second));
  // The share that is kept, 0.7, of 10^5 draws: the deviation is sqrt(0.7 · 0.3 / 10^5) = 0.0014.
  EXPECT_NEAR(first.gt(0).to(torch::kFloat).mean().item<double>(), 0.7, 5 * 0.0014);
  EXPECT_FLOAT_EQ(first.max().item<float>(), 1 / 0.7f);
  execution->step = 1;
  dropout.forward(x);
  execution->step = 0;
  EXPECT_TRUE(torch::equal(dropout.forward(x), first)) << "a step is the same when it is made again";
  dropout.eval();
  EXPECT_TRUE(torch::equal(dropout.forward(x), x));
}

TEST(Dropouts, GradientsPassWhereValuesDo) {
  const auto execution = std::make_shared<Execution>();
  DropoutImpl dropout(0.3);
  dropout.attach(execution, "dropout", 5);
  const torch::Tensor x = uniform({70, 1000}, 1, 2, 1).requires_grad_();
  const torch::Tensor y = dropout.forward(x);
  const torch::Tensor gradient = uniform({1000, 70}, 1, 2, 2).t();  // not contiguous
  y.backward(gradient);
  const torch::Tensor mask = y.detach().gt(0).to(torch::kFloat) * (1 / 0.7f);
  EXPECT_TRUE(same(y.detach(), x.detach() * mask));
  EXPECT_TRUE(same(x.grad(), gradient * mask));
}

}  // namespace
}  // namespace lowtide
