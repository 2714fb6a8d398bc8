#include "lowtide/train/optimizer.h"

#include <gtest/gtest.h>
#include <torch/optim.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "tests/io/scratch.h"
#include "tests/testing.h"
#include "tests/train/optimizer_steps.h"

namespace lowtide {
namespace {

// Two parameters; the gradient of each step is drawn by its number.
struct TwoParameters : torch::nn::Module {
  TwoParameters() {
    a = register_parameter("a", normal({5, 3}, 1));
    b = register_parameter("b", normal({7}, 2));
  }

  void set_gradients(int step) {
    a.mutable_grad() = normal({5, 3}, 100 + step);
    b.mutable_grad() = normal({7}, 200 + step);
  }

  torch::Tensor a, b;
};

// Both ways of halting are those of every test: on a CPU's tensors the masked one does what it does on a device.
constexpr std::array kHaltings{Halting::kOnHost, Halting::kMasked};
std::string name_of(Halting halting) { return halting == Halting::kOnHost ? "on_host" : "masked"; }

// Twenty steps of all, each with the gradients and rates of the others.
void expect_like(const TrainingOptions& training, TwoParameters& theirs,
                 const std::vector<torch::optim::Optimizer*>& reference) {
  std::array<TwoParameters, kHaltings.size()> models;
  std::vector<std::unique_ptr<Optimizer>> optimizers;
  for (std::size_t i = 0; i < models.size(); ++i)
    optimizers.push_back(make_optimizer(training, models[i], kHaltings[i]));
  for (int step = 0; step < 20; ++step) {
    theirs.set_gradients(step);
    for (torch::optim::Optimizer* optimizer : reference) {
      for (auto& group : optimizer->param_groups()) group.options().set_lr(rate_at(step));
      optimizer->step();
    }
    for (std::size_t i = 0; i < models.size(); ++i) {
      SCOPED_TRACE(testing::Message() << name_of(kHaltings[i]) << ", step " << step);
      models[i].set_gradients(step);
      optimizers[i]->step(rate_at(step), flag(false));
      // Each step rounds each number a few times: 20 · 3 · 2^-24 at the worst.
      ASSERT_TRUE(close_to(models[i].a, theirs.a, 1e-6));
      ASSERT_TRUE(close_to(models[i].b, theirs.b, 1e-6));
    }
  }
}

TEST(Sgd, IsThatOfLibtorch) {
  for (const double momentum : {0.0, 0.9}) {
    for (const double decay : {0.0, 0.05}) {
      SCOPED_TRACE(testing::Message() << "momentum " << momentum << ", weight decay " << decay);
      TrainingOptions training;
      training.optimizer = "sgd";
      training.momentum = momentum;
      training.weight_decay = decay;
      TwoParameters theirs;
      torch::optim::SGD sgd(theirs.parameters(),
                            torch::optim::SGDOptions(0.1).momentum(momentum).weight_decay(decay));
      expect_like(training, theirs, {&sgd});
    }
  }
}

TEST(Adam, IsThatOfLibtorch) {
  for (const double decay : {0.0, 0.05}) {
    SCOPED_TRACE(testing::Message() << "weight decay " << decay);
    TrainingOptions training;
    training.optimizer = "adam";
    training.betas = {0.8, 0.99};
    training.weight_decay = decay;
    TwoParameters theirs;
    torch::optim::Adam adam(
        theirs.parameters(),
        torch::optim::AdamOptions(0.1).betas(std::make_tuple(0.8, 0.99)).weight_decay(decay));
    expect_like(training, theirs, {&adam});
  }
}

// Its decay is for products: the parameter of one dimension is changed as by Adam.
TEST(AdamW, IsThatOfLibtorchAndLeavesBiasesToAdam) {
  TrainingOptions training;
  training.optimizer = "adamw";
  training.weight_decay = 0.05;
  TwoParameters theirs;
  torch::optim::AdamW decayed({theirs.a}, torch::optim::AdamWOptions(0.1).weight_decay(0.05));
  torch::optim::Adam plain({theirs.b}, torch::optim::AdamOptions(0.1));
  expect_like(training, theirs, {&decayed, &plain});
}

struct TwoLayers : torch::nn::Module {
  TwoLayers() {
    first = register_module("first", std::make_shared<TwoParameters>());
    second = register_module("second", std::make_shared<TwoParameters>());
  }
  std::shared_ptr<TwoParameters> first, second;
};

// A parameter is changed as with decay where the pattern matches, else as without.
TEST(DecayLayers, AreThoseThatDecay) {
  struct Case {
    std::vector<std::string> patterns;
    std::vector<std::string> decays;
  };
  const std::vector<Case> cases{{{}, {"first.a", "first.b", "second.a", "second.b"}},
                                {{"first"}, {"first.a", "first.b"}},
                                {{"sec*"}, {"second.a", "second.b"}},
                                {{"*.a"}, {"first.a", "second.a"}},
                                {{"first.b", "second.?"}, {"first.b", "second.a", "second.b"}}};
  for (const char* name : {"sgd", "adam", "adamw"}) {
    for (const auto& [patterns, decays] : cases) {
      const auto after_steps = [&](double decay, const std::vector<std::string>& layers) {
        TrainingOptions training;
        training.optimizer = name;
        training.weight_decay = decay;
        training.decay_layers = layers;
        auto model = std::make_unique<TwoLayers>();
        const auto optimizer = make_optimizer(training, *model);
        for (int step = 0; step < 3; ++step) {
          model->first->set_gradients(step);
          model->second->set_gradients(step);
          optimizer->step(0.1, flag(false));
        }
        return model;
      };
      const auto with = after_steps(0.05, {}), without = after_steps(0, {}),
                 some = after_steps(0.05, patterns);
      for (const auto& item : some->named_parameters()) {
        const bool decayed = std::find(decays.begin(), decays.end(), item.key()) != decays.end();
        const auto& expected = decayed ? *with : *without;
        EXPECT_TRUE(same(item.value(), expected.named_parameters()[item.key()])) << name << " " << item.key();
      }
      EXPECT_FALSE(with->first->a.equal(without->first->a)) << name;
    }
  }
}

TEST(DecayLayers, OneThatMatchesNothingIsNamed) {
  TwoLayers model;
  TrainingOptions training;
  training.decay_layers = {"first", "third"};
  EXPECT_TRUE(contains(user_error([&] { make_optimizer(training, model); }), "decay-layers: 'third'",
                       "lowtide cost"));
}

class AnyOptimizer : public testing::TestWithParam<std::tuple<std::string, Halting>> {
 protected:
  static std::string name() { return std::get<0>(GetParam()); }
  static std::unique_ptr<Optimizer> make(torch::nn::Module& model) {
    TrainingOptions training;
    training.optimizer = name();
    return make_optimizer(training, model, std::get<1>(GetParam()));
  }
};

TEST_P(AnyOptimizer, ATrueHaltLeavesEverythingAlone) {
  TwoParameters model;
  const auto optimizer = make(model);
  model.set_gradients(0);
  optimizer->step(0.1, flag(false));
  const torch::Tensor a = model.a.detach().clone(), b = model.b.detach().clone();
  NamedTensors before;
  for (const auto& [name, tensor] : optimizer->tensors()) before.emplace_back(name, tensor.clone());
  const Json state = optimizer->state();

  model.set_gradients(1);
  model.a.mutable_grad().fill_(std::numeric_limits<float>::quiet_NaN());
  for (int step = 0; step < 3; ++step) optimizer->step(0.1, flag(true));
  EXPECT_TRUE(same(model.a.detach(), a));
  EXPECT_TRUE(same(model.b.detach(), b));
  EXPECT_EQ(optimizer->state(), state);
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_TRUE(same(optimizer->tensors()[i].second, before[i].second)) << before[i].first;
}

// A loss that is not finite halts the run, but nothing in it: it goes on as if those steps had not been.
TEST_P(AnyOptimizer, GoesOnAfterAHaltAsIfItHadNotBeen) {
  TwoParameters halted, undisturbed;
  const auto one = make(halted), other = make(undisturbed);
  for (int step = 0; step < 4; ++step) {
    halted.set_gradients(100);
    one->step(rate_at(step), flag(true));
    for (TwoParameters* model : {&halted, &undisturbed}) model->set_gradients(step);
    one->step(rate_at(step), flag(false));
    other->step(rate_at(step), flag(false));
  }
  EXPECT_TRUE(same(halted.a, undisturbed.a));
  EXPECT_TRUE(same(halted.b, undisturbed.b));
}

TEST_P(AnyOptimizer, GoesOnExactlyFromItsSavedState) {
  TwoParameters whole, stopped;
  const auto undisturbed = make(whole);
  const auto first = make(stopped);
  for (int step = 0; step < 3; ++step) {
    whole.set_gradients(step);
    undisturbed->step(rate_at(step), flag(false));
    stopped.set_gradients(step);
    first->step(rate_at(step), flag(false));
  }
  const auto second = make(stopped);
  second->restore(first->state());
  for (std::size_t i = 0; i < first->tensors().size(); ++i) {
    EXPECT_EQ(second->tensors()[i].first, first->tensors()[i].first);
    second->tensors()[i].second.copy_(first->tensors()[i].second);
  }
  for (int step = 3; step < 6; ++step) {
    whole.set_gradients(step);
    undisturbed->step(rate_at(step), flag(false));
    stopped.set_gradients(step);
    second->step(rate_at(step), flag(false));
  }
  EXPECT_TRUE(same(stopped.a, whole.a));
  EXPECT_TRUE(same(stopped.b, whole.b));
}

TEST_P(AnyOptimizer, NeitherLayoutNorThreadsMatter) {
  const auto train = [&](torch::MemoryFormat of_parameter, torch::MemoryFormat of_gradient) {
    Kernel model;
    {
      const torch::NoGradGuard no_grad;
      model.weight.set_data(model.weight.contiguous(of_parameter));
    }
    const auto optimizer = make(model);
    for (int step = 0; step < 3; ++step) {
      model.weight.mutable_grad() = normal({40, 130, 3, 3}, 100 + step).contiguous(of_gradient);
      optimizer->step(0.1, flag(false));
    }
    return model.weight.detach();
  };
  const auto rows = torch::MemoryFormat::Contiguous, last = torch::MemoryFormat::ChannelsLast;
  const torch::Tensor expected = train(rows, rows);
  for (const auto of_parameter : {rows, last}) {
    for (const auto of_gradient : {rows, last}) {
      EXPECT_TRUE(same(train(of_parameter, of_gradient), expected));
    }
  }
  expect_independent_of_threads([&] { return train(last, last); });
}

TEST_P(AnyOptimizer, NamesItsTensorsByTheParameters) {
  TwoParameters model;
  const auto optimizer = make(model);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : optimizer->tensors()) names.push_back(name);
  const std::vector<std::string> expected =
      name() == "sgd" ? std::vector<std::string>{"a.momentum", "b.momentum"}
                      : std::vector<std::string>{"a.first_moment", "b.first_moment", "a.second_moment",
                                                 "b.second_moment"};
  EXPECT_EQ(names, expected);
}

INSTANTIATE_TEST_SUITE_P(Optimizers, AnyOptimizer,
                         testing::Combine(testing::Values("sgd", "adam", "adamw"),
                                          testing::ValuesIn(kHaltings)),
                         [](const auto& instance) {
                           return std::get<0>(instance.param) + "_" + name_of(std::get<1>(instance.param));
                         });

class ClipGradients : public testing::Test {
 protected:
  ClipGradients() {
    model_.a.mutable_grad() = torch::full({5, 3}, 2.0f);  // norm² 60
    model_.b.mutable_grad() = torch::full({7}, -2.0f);    // norm² 28
  }
  double norm() const {
    return std::sqrt((model_.a.grad().square().sum() + model_.b.grad().square().sum()).item<double>());
  }

  const double before_ = std::sqrt(88.0);
  TwoParameters model_;
};

TEST_F(ClipGradients, WithoutALimitOnlyMeasures) {
  EXPECT_NEAR(clip_gradients(model_.parameters(), 0).item<double>(), before_, 1e-5);
  EXPECT_TRUE(same(model_.a.grad(), torch::full({5, 3}, 2.0f)));
}

TEST_F(ClipGradients, BelowTheLimitChangesNothing) {
  EXPECT_NEAR(clip_gradients(model_.parameters(), 100).item<double>(), before_, 1e-5);
  EXPECT_TRUE(same(model_.a.grad(), torch::full({5, 3}, 2.0f)));
  EXPECT_TRUE(same(model_.b.grad(), torch::full({7}, -2.0f)));
}

TEST_F(ClipGradients, AboveTheLimitKeepsTheDirection) {
  EXPECT_NEAR(clip_gradients(model_.parameters(), 0.25).item<double>(), before_, 1e-5);
  EXPECT_NEAR(norm(), 0.25, 1e-6);
  EXPECT_LE(norm(), 0.25 * (1 + 1e-6));
  EXPECT_TRUE(close_to(model_.a.grad(), torch::full({5, 3}, 0.5 / before_), 1e-6));
  EXPECT_TRUE(close_to(model_.b.grad(), torch::full({7}, -0.5 / before_), 1e-6));
}

TEST_F(ClipGradients, TheNormTellsOfAGradientThatIsNotFinite) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const double limit : {0.0, 1.0}) {
      model_.b.mutable_grad() = torch::ones({7});
      model_.b.mutable_grad()[3] = bad;
      EXPECT_FALSE(std::isfinite(clip_gradients(model_.parameters(), limit).item<double>()));
      EXPECT_TRUE(same(model_.a.grad(), torch::full({5, 3}, 2.0f))) << "so that its place can be found";
    }
  }
}

// A gradient larger than what libtorch sums with one thread, in channels-last order as a convolution's is.
TEST_F(ClipGradients, TheNormDoesNotDependOnTheNumberOfThreads) {
  const torch::Tensor gradient = normal({64, 130, 3, 3}, 1).contiguous(torch::MemoryFormat::ChannelsLast);
  const torch::Tensor parameter =
      torch::zeros({64, 130, 3, 3}).contiguous(torch::MemoryFormat::ChannelsLast).requires_grad_();
  expect_independent_of_threads([&] {
    parameter.mutable_grad() = gradient.clone();
    return clip_gradients({parameter}, 0);
  });
  EXPECT_NEAR(clip_gradients({parameter}, 0).item<double>(),
              gradient.to(torch::kDouble).norm().item<double>(), 1e-3);
}

}  // namespace
}  // namespace lowtide
