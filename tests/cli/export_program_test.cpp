// `lowtide export` as a user runs it.
#include <gtest/gtest.h>

#include "lowtide/base/json.h"
#include "lowtide/io/safetensors.h"
#include "tests/cli/program.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

class ExportProgram : public Program {
 protected:
  // A short run; its last checkpoint.
  std::string train(const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments{"--steps", "4"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Finished finished = run(train_arguments(folder_ / "run", arguments));
    EXPECT_EQ(finished.code, 0) << finished.error;
    return RunPaths{folder_ / "run"}.checkpoint(4).string();
  }

  std::vector<std::string> export_arguments(const std::string& checkpoint,
                                            const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments{"export", "--checkpoint", checkpoint, "--out", out_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  const std::string out_ = (folder_ / "m.onnx").string();
};

TEST_F(ExportProgram, WritesBothFormsAndMeasuresTheOneThatDiffers) {
  const std::string checkpoint = train();
  const Finished exact = run(export_arguments(checkpoint));
  EXPECT_EQ(exact.code, 0) << exact.error;
  EXPECT_TRUE(contains(exact.out, out_, "cifar-resnet8, form exact, 8 bits"));
  EXPECT_TRUE(contains(file_bytes(out_), "lowtide", "QuantizeLinear", "lowtide.form"));
  const Finished text = run(export_arguments(checkpoint, {"--form", "qdq"}));
  EXPECT_TRUE(contains(text.out, "evaluated here, 60 images", "of the exported network, 60 images"));
  const Finished qdq = run(export_arguments(checkpoint, {"--form", "qdq", "--json"}));
  ASSERT_EQ(qdq.code, 0) << qdq.error;
  const Json about = Json::parse(qdq.out),
             evaluated = Json::parse(run({"eval", "--checkpoint", checkpoint, "--json"}).out);
  EXPECT_EQ(about.at("test").at("evaluated"), evaluated.at("accuracy"));
  EXPECT_NEAR(about.at("test").at("exported").get<double>(), evaluated.at("accuracy").get<double>(), 0.2);
  EXPECT_EQ(about.at("bytes"), fs::file_size(out_));
  EXPECT_TRUE(contains(file_bytes(out_), "lowtide.test", "\"exported\""));
}

TEST_F(ExportProgram, EvaluatesAtTheBitsThatItIsTold) {
  const std::string checkpoint = train();
  const Finished finished = run(export_arguments(checkpoint, {"--bits", "5", "--json"}));
  ASSERT_EQ(finished.code, 0) << finished.error;
  EXPECT_EQ(Json::parse(finished.out).at("bits"), 5);
  const std::uintmax_t codes = fs::file_size(out_);
  ASSERT_EQ(run(export_arguments(checkpoint, {"--bits", "0"})).code, 0);
  EXPECT_GT(fs::file_size(out_), 2 * codes);  // weights of four bytes for one, but fewer nodes and names
}

TEST_F(ExportProgram, GivesWeightsTheNamesOfTorchvision) {
  const std::string checkpoint = train({"--model", "resnet18"});
  const Finished finished = run(export_arguments(checkpoint, {"--form", "safetensors"}));
  ASSERT_EQ(finished.code, 0) << finished.error;
  const SafetensorsFile weights(out_), from(checkpoint);
  EXPECT_EQ(weights.tensors().size(), 102u);  // torchvision's 122 but for 20 num_batches_tracked
  for (const auto& [name, ours] :
       {std::pair{"layer2.0.downsample.1.running_var", "model.layer2.0.shortcut_norm.running_variance"},
        {"bn1.weight", "model.norm1.weight"},
        {"layer4.1.conv2.weight", "model.layer4.1.conv2.weight"},
        {"fc.bias", "model.fc.bias"}}) {
    EXPECT_EQ(text_of(weights.at(name).data), text_of(from.at(ours).data)) << name;
  }
  EXPECT_EQ(weights.metadata().at("format"), "pt");
}

TEST_F(ExportProgram, SaysInOneLineWhatCannotBe) {
  const std::string checkpoint = train();
  expect_mistake(export_arguments(checkpoint, {"--form", "qdt"}), "form is 'qdt' (did you mean 'qdq'?)");
  expect_mistake(export_arguments(checkpoint, {"--form", "qdq", "--bits", "12"}), "12 bits in the form qdq");
  expect_mistake(export_arguments(checkpoint, {"--form", "safetensors"}),
                 "cifar-resnet8: neither torchvision nor transformers has such a network");
  expect_mistake(export_arguments(checkpoint, {"--form", "safetensors", "--bits", "8"}),
                 "--bits is of a network that computes");
  expect_mistake(export_arguments(checkpoint, {"--bits", "99"}), "99");
  expect_mistake(export_arguments(checkpoint, {"--data-dir", "/nowhere"}), "/nowhere");
  expect_mistake({"export", "--checkpoint", checkpoint, "--out", "/nowhere/m.onnx"},
                 "cannot write /nowhere/m.onnx");
  expect_mistake(export_arguments("/nowhere/c.safetensors"), "/nowhere/c.safetensors");
  expect_mistake({"export", "--checkpoint", checkpoint}, "--out is required");
  EXPECT_FALSE(fs::exists(out_));
}

}  // namespace
}  // namespace lowtide
