#include "lowtide/train/checkpoint.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>

#include <fstream>
#include <limits>

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

const Json kState{
    {"format", kCheckpointFormat}, {"step", 1234567890123}, {"total_steps", 1234567890124}, {"loss", 0.1},
    {"name", "α \"β\""},           {"list", {1, 2, 3}}};

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

void read_all(const std::filesystem::path& path) {
  read_checkpoint_state(path);
  read_checkpoint_tensors(path, zeros_like(some_tensors()));
}

TEST_F(Checkpoint, EveryChangedBitIsNoticed) {
  write_checkpoint(path_, some_tensors(), kState);
  read_all(path_);
  const std::string whole = read_text_file(path_);
  std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
  const auto put = [&](std::size_t at, int byte) {
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(byte)).flush();
  };
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      put(at, whole[at] ^ (1 << bit));
      EXPECT_THROW(read_all(path_), UserError) << "byte " << at << ", bit " << bit;
    }
    put(at, whole[at]);
  }
  read_all(path_);
}

TEST_F(Checkpoint, AnotherProgramsReaderSeesTwoMoreStrings) {
  write_checkpoint(path_, some_tensors(), kState);
  const SafetensorsFile file(path_);
  std::vector<std::string> keys;
  for (const auto& [key, value] : file.metadata()) keys.push_back(key);
  EXPECT_EQ(keys, (std::vector<std::string>{"data_xxh128", "header_xxh128", "lowtide"}));
  EXPECT_EQ(file.tensors().size(), some_tensors().size());
}

TEST_F(Checkpoint, FilesFromBeforeThereWereDigestsAreRead) {
  const NamedTensors written{{"w", normal({3}, 4)}};
  const TensorView view{
      "w", DType::kF32, {3}, {static_cast<const std::byte*>(written[0].second.data_ptr()), 12}};
  Json state = kState;
  state["format"] = 1;
  write_safetensors(path_, std::span(&view, 1), {{"lowtide", state.dump()}});
  EXPECT_EQ(read_checkpoint_state(path_), state);
  const NamedTensors read = zeros_like(written);
  read_checkpoint_tensors(path_, read);
  EXPECT_TRUE(same(read[0].second, written[0].second));
}

TEST_F(Checkpoint, StateThatCannotBeIsTold) {
  const std::filesystem::path path = folder_ / "step-00000015.safetensors";
  const auto reading = [&](const std::string& key, const Json& value, int format) {
    Json state{{"format", format}, {"step", 15}, {"total_steps", 40}};
    state[key] = value;
    write_checkpoint(path, {}, state);
    return user_error([&] { read_checkpoint_state(path); });
  };
  for (const int format : {1, 2}) {
    for (const Json& step : {Json(99), Json(-5), Json(1.5), Json(1e18), Json(15.0), Json("15"), Json(),
                             Json(std::numeric_limits<std::uint64_t>::max())})
      EXPECT_TRUE(
          contains(reading("step", step, format), path.string(), "step is " + step.dump(), "from 0 to 40"));
    EXPECT_TRUE(contains(reading("step", 16, format), path.string(), "step is 16; expected 15"));
    EXPECT_TRUE(contains(reading("total_steps", 14, format), "step is 15", "from 0 to 14"));
    EXPECT_TRUE(contains(reading("total_steps", 40.5, format), "total_steps is 40.5"));
  }
  for (const Json& format : {Json(3), Json(0), Json(1.5), Json("2"), Json()})
    EXPECT_TRUE(contains(reading("format", format, 2), path.string(), "format is", "from 1 to 2"));
  write_checkpoint(path, {}, {{"step", 15}, {"total_steps", 40}});
  EXPECT_TRUE(contains(user_error([&] { read_checkpoint_state(path); }), "format is missing"));
}

TEST_F(Checkpoint, WithoutItsSealANewCheckpointIsRefused) {
  write_safetensors(path_, {}, {{"lowtide", kState.dump()}});
  EXPECT_TRUE(contains(user_error([&] { read_checkpoint_state(path_); }), path_.string(), "its header"));
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
