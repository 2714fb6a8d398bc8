#include "lowtide/models/bert.h"

#include "lowtide/io/safetensors.h"
#include "lowtide/models/bert_weights.h"
#include "lowtide/models/initialise.h"
#include "lowtide/nn/quant_layer.h"
#include "tests/io/scratch.h"
#include "tests/testing.h"

namespace lowtide {
namespace {

constexpr BertConfig kSmall{.vocabulary = 20,
                            .hidden = 12,
                            .layers = 2,
                            .heads = 3,
                            .feed_forward = 16,
                            .positions = 10,
                            .dropout = 0,
                            .attention_dropout = 0};

TEST(Bert, PublishedNumberOfParameters) {
  // BERT-tiny, 2 layers of 128 units (Turc et al. 2019): 4.4 million.
  const BertClassifier tiny({.hidden = 128, .layers = 2, .heads = 2, .feed_forward = 512}, 2);
  std::int64_t parameters = 0;
  for (const auto& parameter : tiny.parameters()) parameters += parameter.numel();
  EXPECT_EQ(parameters, 4'385'920 + 2 * 128 + 2);
}

class SmallBert : public testing::Test {
 protected:
  SmallBert() {
    initialise(*model_, 1);
    attach_layers(*model_, execution_, LayerRules());
  }

  // Writes the model's weights under the names that `rename` makes of the published ones; an empty name leaves one out.
  template <typename Rename>
  std::filesystem::path write(const Rename& rename, torch::ScalarType type = torch::kFloat32) {
    std::vector<torch::Tensor> held;
    std::vector<TensorView> views;
    for (const auto& item : model_->named_parameters()) {
      const std::string name = rename(published_name(item.key()));
      if (name.empty()) continue;
      held.push_back(item.value().detach().to(type).contiguous());
      views.push_back({name,
                       type == torch::kFloat32   ? DType::kF32
                       : type == torch::kFloat16 ? DType::kF16
                                                 : DType::kI64,
                       held.back().sizes().vec(),
                       {static_cast<const std::byte*>(held.back().data_ptr()), held.back().nbytes()}});
    }
    const std::filesystem::path path = folder_ / "model.safetensors";
    write_safetensors(path, views, {});
    return path;
  }

  void expect_loads(const std::filesystem::path& path, double tolerance = 0) {
    BertClassifier other(kSmall, 3);
    load_bert_weights(other, path);
    for (const auto& item : other.named_parameters()) {
      EXPECT_TRUE(close_to(item.value().detach(), model_->named_parameters()[item.key()].detach(), tolerance))
          << item.key();
    }
  }

  torch::Tensor scores(const torch::Tensor& words, const torch::Tensor& present) {
    return model_->forward({words, torch::zeros_like(words), present}).detach();
  }

  const ScratchFolder folder_;
  const std::shared_ptr<BertClassifier> model_ = std::make_shared<BertClassifier>(kSmall, 3);
  std::shared_ptr<Execution> execution_ = execution_at({0, 0});
};

TEST_F(SmallBert, PaddingChangesNothingInFullPrecision) {
  const torch::Tensor words = torch::tensor({{2, 5, 7, 3}}), padded = torch::tensor({{2, 5, 7, 3, 0, 0}});
  const torch::Tensor short_scores = scores(words, torch::ones_like(words));
  const torch::Tensor present = torch::tensor({{1, 1, 1, 1, 0, 0}});
  EXPECT_TRUE(close_to(scores(padded, present), short_scores, 1e-5));
  EXPECT_FALSE(close_to(scores(padded, torch::ones_like(padded)), short_scores, 1e-3))
      << "the mask is what does it";
}

TEST_F(SmallBert, EveryParameterGetsAFiniteGradient) {
  execution_->bits = {4, 8};
  const torch::Tensor words = torch::tensor({{2, 5, 7, 3}, {2, 9, 3, 0}});
  const torch::Tensor present = torch::tensor({{1, 1, 1, 1}, {1, 1, 1, 0}});
  model_->forward({words, torch::zeros_like(words), present}).pow(2).sum().backward();
  for (const auto& item : model_->named_parameters()) {
    ASSERT_TRUE(item.value().grad().defined()) << item.key();
    EXPECT_TRUE(torch::isfinite(item.value().grad()).all().item<bool>()) << item.key();
  }
}

TEST_F(SmallBert, PublishedNames) {
  EXPECT_EQ(published_name("word_embedding.weight"), "embeddings.word_embeddings.weight");
  EXPECT_EQ(published_name("layer11.attention.query.bias"), "encoder.layer.11.attention.self.query.bias");
  EXPECT_EQ(published_name("layer0.output_norm.weight"), "encoder.layer.0.output.LayerNorm.weight");
  EXPECT_EQ(published_name("classifier.bias"), "classifier.bias");
}

TEST_F(SmallBert, LoadsWithAndWithoutThePrefix) {
  expect_loads(write([](const std::string& name) { return name; }));
  expect_loads(
      write([](const std::string& name) { return name.starts_with("classifier") ? name : "bert." + name; }));
}

TEST_F(SmallBert, LoadsOldNamesAndHalfPrecision) {
  const auto old_name = [](std::string name) {
    for (const auto& [now, before] :
         {std::pair{"Norm.weight", "Norm.gamma"}, std::pair{"Norm.bias", "Norm.beta"}}) {
      if (name.ends_with(now)) name.replace(name.size() - std::string(now).size(), std::string::npos, before);
    }
    return "bert." + name;
  };
  expect_loads(write(old_name));
  expect_loads(write(old_name, torch::kFloat16), 1e-3);  // 11 bits of significand
}

TEST_F(SmallBert, AClassifierThatIsNotThereStaysAsItWas) {
  const auto path = write([](const std::string& name) { return name.starts_with("classifier") ? "" : name; });
  const auto other = std::make_shared<BertClassifier>(kSmall, 2);
  initialise(*other, 9);
  const torch::Tensor before = other->named_parameters()["classifier.weight"].detach().clone();
  load_bert_weights(*other, path);
  EXPECT_TRUE(same(other->named_parameters()["classifier.weight"].detach(), before));
  EXPECT_TRUE(same(other->named_parameters()["pooler.weight"].detach(),
                   model_->named_parameters()["pooler.weight"].detach()));
}

TEST_F(SmallBert, WrongWeightsAreOneLine) {
  BertClassifier other(kSmall, 3);
  const auto error = [&](const std::filesystem::path& path) {
    return user_error([&] { load_bert_weights(other, path); });
  };
  const std::string missing = "encoder.layer.1.output.dense.bias";
  EXPECT_TRUE(contains(error(write([&](const std::string& name) { return name == missing ? "" : name; })),
                       "model.safetensors", missing, "2 layers"));
  BertClassifier larger(
      {.vocabulary = 21, .hidden = 12, .layers = 2, .heads = 3, .feed_forward = 16, .positions = 10}, 3);
  EXPECT_TRUE(contains(
      user_error([&] { load_bert_weights(larger, write([](const std::string& name) { return name; })); }),
      "word_embeddings.weight", "[20, 12]", "[21, 12]"));
  EXPECT_TRUE(
      contains(error(write([](const std::string& name) { return name; }, torch::kInt64)), "I64", "floating"));
  EXPECT_TRUE(contains(error(folder_ / "nothing.safetensors"), "nothing.safetensors"));
}

}  // namespace
}  // namespace lowtide
