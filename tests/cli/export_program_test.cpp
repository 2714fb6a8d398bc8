// `lowtide export` as a user runs it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lowtide/base/json.h"
#include "lowtide/io/safetensors.h"
#include "tests/cli/program.h"
#include "tests/cli/small_data.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

class ExportProgram : public Program {
 protected:
  // A short run; its last checkpoint.
  std::string train(const std::vector<std::string>& more = {}) {
    return trained(train_arguments(folder_ / "run", {}), more);
  }

  // Of other data than the recipe's.
  std::string train_on(const std::string& data, const fs::path& folder,
                       const std::vector<std::string>& more) {
    return trained(
        {"train", "--data", data, "--data-dir", folder.string(), "--out", (folder_ / "run").string()}, more);
  }

  std::vector<std::string> export_arguments(const std::string& checkpoint,
                                            const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments{"export", "--checkpoint", checkpoint, "--out", out_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  const std::string out_ = (folder_ / "m.onnx").string();

 private:
  std::string trained(std::vector<std::string> arguments, const std::vector<std::string>& more) {
    arguments.insert(arguments.end(), {"--steps", "4", "--cycles", "2"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Finished finished = run(arguments);
    EXPECT_EQ(finished.code, 0) << finished.error;
    return RunPaths{folder_ / "run"}.checkpoint(4).string();
  }
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

TEST_F(ExportProgram, WritesALanguageModelWithItsState) {
  write_text(folder_ / "text");
  const std::string checkpoint =
      train_on("ptb", folder_ / "text",
               {"--model", "lstm", "--hidden", "8", "--layers", "2", "--batch", "4", "--length", "6"});
  for (const char* form : {"exact", "qdq"}) {
    const Finished finished = run(export_arguments(checkpoint, {"--form", form, "--bits", "6"}));
    EXPECT_EQ(finished.code, 0) << finished.error;
    EXPECT_TRUE(contains(finished.out, out_, fmt::format("lstm, form {}, 6 bits", form)));
    EXPECT_TRUE(contains(file_bytes(out_), "Scan", "lstm1.cell", "next.lstm1.cell", "scores"));
  }
}

TEST_F(ExportProgram, WritesAnEntailmentNetwork) {
  write_pairs(folder_ / "pairs");
  const std::string vocabulary = (folder_ / "pairs/vocab.txt").string();
  const std::string checkpoint =
      train_on("sick", folder_ / "pairs",
               {"--vocabulary", vocabulary, "--model", "bert", "--hidden", "8", "--layers", "1", "--heads",
                "2", "--feed-forward", "16", "--length", "12", "--batch", "8"});
  const Finished exact = run(export_arguments(checkpoint, {}));
  EXPECT_EQ(exact.code, 0) << exact.error;
  EXPECT_TRUE(contains(file_bytes(out_), "attention_mask", "token_type_ids", "MatMulInteger", "logits"));
  const Finished qdq = run(export_arguments(checkpoint, {"--form", "qdq"}));
  EXPECT_TRUE(
      contains(qdq.out, "bert, form qdq", "evaluated here, 22 pairs", "of the exported network, 22 pairs"));
  ASSERT_EQ(run(export_arguments(checkpoint, {"--form", "safetensors"})).code, 0);
  EXPECT_NE(SafetensorsFile(out_).find("bert.encoder.layer.0.attention.self.query.weight"), nullptr);
}

TEST_F(ExportProgram, RefusesANetworkOnAGraph) {
  write_papers(folder_ / "papers");
  const std::string checkpoint = train_on("citation", folder_ / "papers",
                                          {"--model", "gcn", "--hidden", "8", "--node-split", "0.5:0.2"});
  expect_mistake(export_arguments(checkpoint), "gcn cannot be exported");
  EXPECT_FALSE(fs::exists(out_));
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
