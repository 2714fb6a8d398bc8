#include "lowtide/train/checkpoint.h"

#include <gtest/gtest.h>

#include "lowtide/io/safetensors.h"
#include "tests/io/scratch.h"
#include "tests/testing.h"

namespace lowtide {
namespace {

NamedTensors some_tensors() {
  return {{"model.conv.weight", normal({4, 3, 3, 3}, 1).contiguous(torch::MemoryFormat::ChannelsLast)},
          {"model.fc.bias", normal({5}, 2).requires_grad_()},
          {"counter", torch::tensor({std::int64_t{1} << 40}, torch::kInt64)},
          {"view", normal({6, 4}, 3).t()},
          {"scalar", torch::tensor(0.5f)}};
}

NamedTensors zeros_like(const NamedTensors& tensors) {
  NamedTensors zeros;
  for (const auto& [name, tensor] : tensors) zeros.emplace_back(name, torch::zeros_like(tensor));
  return zeros;
}

const Json kState{{"step", 1234567890123}, {"loss", 0.1}, {"name", "α \"β\""}, {"list", {1, 2, 3}}};

class Checkpoint : public testing::Test {
 protected:
  const ScratchFolder folder_;
  const std::filesystem::path path_ = folder_ / "one.safetensors";
};

TEST_F(Checkpoint, GivesBackWhatWasWritten) {
  const NamedTensors written = some_tensors();
  write_checkpoint(path_, written, kState);
  const NamedTensors read = zeros_like(written);
  read_checkpoint_tensors(path_, read);
  for (std::size_t i = 0; i < written.size(); ++i)
    EXPECT_TRUE(same(read[i].second, written[i].second)) << written[i].first;
  EXPECT_EQ(read_checkpoint_state(path_), kState);
}

TEST_F(Checkpoint, TheSameStateGivesTheSameBytes) {
  write_checkpoint(path_, some_tensors(), kState);
  write_checkpoint(folder_ / "two", some_tensors(), kState);
  EXPECT_EQ(read_file(path_), read_file(folder_ / "two"));
}

TEST_F(Checkpoint, TensorsMayBeReadInPartAndInAnyOrder) {
  const NamedTensors written = some_tensors();
  write_checkpoint(path_, written, kState);
  const NamedTensors read{{"view", torch::zeros({4, 6})}, {"model.fc.bias", torch::zeros({5})}};
  read_checkpoint_tensors(path_, read);
  EXPECT_TRUE(same(read[0].second, written[3].second));
  EXPECT_TRUE(same(read[1].second, written[1].second.detach()));
}

TEST_F(Checkpoint, AnotherShapeOrTypeIsToldWithBoth) {
  write_checkpoint(path_, some_tensors(), kState);
  const auto reading = [&](const torch::Tensor& tensor) {
    return user_error([&] { read_checkpoint_tensors(path_, {{"model.fc.bias", tensor}}); });
  };
  EXPECT_TRUE(contains(reading(torch::zeros({6})), path_.string(), "model.fc.bias", "F32 [5]", "F32 [6]",
                       "another model"));
  EXPECT_TRUE(contains(reading(torch::zeros({5, 1})), "F32 [5]", "F32 [5, 1]"));
  EXPECT_TRUE(contains(reading(torch::zeros({5}, torch::kInt64)), "F32 [5]", "I64 [5]"));
}

TEST_F(Checkpoint, AMissingTensorIsNamed) {
  write_checkpoint(path_, some_tensors(), kState);
  const std::string message = user_error([&] {
    read_checkpoint_tensors(path_, {{"model.fc.weight", torch::zeros({5})}});
  });
  EXPECT_TRUE(contains(message, path_.string(), "no tensor", "model.fc.weight"));
}

TEST_F(Checkpoint, ForeignAndDamagedFilesAreTold) {
  const auto reading = [&] { return user_error([&] { read_checkpoint_state(path_); }); };
  EXPECT_TRUE(contains(reading(), path_.string(), "no such file"));

  write_atomically(path_, "this is no checkpoint at all");
  EXPECT_TRUE(contains(reading(), path_.string()));

  write_safetensors(path_, {}, {{"format", "pt"}});
  EXPECT_TRUE(contains(reading(), path_.string(), "not a checkpoint of lowtide"));

  write_safetensors(path_, {}, {{"lowtide", "{\"step\": "}});
  EXPECT_TRUE(contains(reading(), path_.string(), "not valid JSON"));
  write_safetensors(path_, {}, {{"lowtide", "[1]"}});
  EXPECT_TRUE(contains(reading(), path_.string(), "not an object"));
  write_safetensors(path_, {}, {{"lowtide", std::string(200'000, '[')}});
  EXPECT_TRUE(contains(reading(), path_.string(), "nested more than 64 levels"));

  write_checkpoint(path_, some_tensors(), kState);
  const std::string whole = read_text_file(path_);
  write_atomically(path_, std::string_view(whole).substr(0, whole.size() - 1));
  EXPECT_TRUE(contains(reading(), path_.string()));
  EXPECT_TRUE(contains(user_error([&] { read_checkpoint_tensors(path_, some_tensors()); }), path_.string()));
}

TEST_F(Checkpoint, AnUnknownTypeIsABrokenInvariant) {
  EXPECT_THROW(write_checkpoint(path_, {{"x", torch::zeros({1}, torch::kDouble)}}, kState), std::logic_error);
}

TEST(ModelTensors, AreParametersAndBuffersByName) {
  struct Model : torch::nn::Module {
    Model() {
      register_module("inner", torch::nn::BatchNorm2d(3));
      register_parameter("scale", torch::ones({1}));
    }
  } model;
  std::vector<std::string> names;
  for (const auto& [name, tensor] : with_prefix("x.", model_tensors(model))) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"x.model.scale", "x.model.inner.weight", "x.model.inner.bias",
                                             "x.model.inner.running_mean", "x.model.inner.running_var",
                                             "x.model.inner.num_batches_tracked"}));
}

}  // namespace
}  // namespace lowtide
