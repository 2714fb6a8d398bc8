#include "lowtide/models/transformer_language_model.h"

#include "lowtide/models/initialise.h"
#include "lowtide/nn/quant_layer.h"
#include "tests/io/scratch.h"
#include "tests/testing.h"

namespace lowtide {
namespace {

constexpr LanguageModelOptions kOptions{
    .words = 17, .units = 12, .layers = 2, .dropout = 0, .heads = 3, .feed_forward = 20};

class TransformerModel : public testing::Test {
 protected:
  TransformerModel() {
    initialise(*model_, 1);
    attach_layers(*model_, execution_, LayerRules());
  }

  torch::Tensor scores(const torch::Tensor& words) {
    NamedTensors state = model_->initial_state(words.size(1));
    return model_->forward(words, state);
  }

  const std::shared_ptr<TransformerLanguageModel> model_ =
      std::make_shared<TransformerLanguageModel>(kOptions);
  std::shared_ptr<Execution> execution_ = execution_at({0, 0});
};

torch::Tensor some_words(std::int64_t length, std::int64_t batch) {
  return (torch::arange(length * batch) * 7 % 17).view({length, batch});
}

TEST_F(TransformerModel, AWordSeesThoseBeforeItAlone) {
  const torch::Tensor words = some_words(9, 2);
  const torch::Tensor before = scores(words).detach();
  for (std::int64_t changed = 0; changed < 9; ++changed) {
    torch::Tensor other = words.clone();
    other[changed][1] = (other[changed][1] + 1) % 17;
    const torch::Tensor after = scores(other).detach();
    if (changed > 0) {
      EXPECT_TRUE(close_to(after.narrow(0, 0, changed), before.narrow(0, 0, changed), 1e-5)) << changed;
    }
    // Every later word of the same column does see it; the other column never.
    for (std::int64_t later = changed; later < 9; ++later) {
      EXPECT_FALSE(close_to(after[later][1], before[later][1], 1e-5)) << changed << " seen from " << later;
    }
    EXPECT_TRUE(close_to(after.select(1, 0), before.select(1, 0), 1e-5));
  }
}

TEST_F(TransformerModel, OrderMatters) {
  const torch::Tensor words = torch::tensor({{3}, {5}, {9}}), swapped = torch::tensor({{5}, {3}, {9}});
  EXPECT_FALSE(close_to(scores(words)[2].detach(), scores(swapped)[2].detach(), 1e-3));
}

TEST_F(TransformerModel, EveryLayerIsToldAndHasFiniteGradients) {
  std::map<std::string, std::int64_t> macs;
  execution_->bits = {4, 8};
  execution_->stochastic = true;
  execution_->listener = [&](const LayerEvent& event) { macs[event.layer] += event.macs; };
  const torch::Tensor y = scores(some_words(5, 2));
  EXPECT_EQ(y.sizes(), (std::vector<std::int64_t>{5, 2, 17}));
  y.pow(2).sum().backward();
  for (const auto& item : model_->named_parameters()) {
    ASSERT_TRUE(item.value().grad().defined()) << item.key();
    EXPECT_TRUE(torch::isfinite(item.value().grad()).all().item<bool>()) << item.key();
  }
  // 10 words of 12 units; scores and context are 2 items × 3 heads × 5 × 5 × 4 each.
  EXPECT_EQ(macs.at("layer0.attention.query"), 10 * 12 * 12);
  EXPECT_EQ(macs.at("layer1.attention.scores"), 2 * 3 * 5 * 5 * 4);
  EXPECT_EQ(macs.at("layer1.attention.context"), 2 * 3 * 5 * 5 * 4);
  EXPECT_EQ(macs.at("layer0.expand"), 10 * 12 * 20);
  EXPECT_EQ(macs.at("decoder"), 10 * 12 * 17);
  EXPECT_EQ(macs.size(), 2u * 8 + 1);
}

TEST_F(TransformerModel, HeadsMustDivideTheUnits) {
  LanguageModelOptions options = kOptions;
  options.heads = 5;
  EXPECT_TRUE(contains(user_error([&] { make_language_model("transformer", options); }), "heads is 5", "12"));
}

}  // namespace
}  // namespace lowtide
