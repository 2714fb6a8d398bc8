// A user's own data through the program: checked, trained on, evaluated, predicted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "lowtide/base/json.h"
#include "lowtide/io/file.h"
#include "lowtide/study/child.h"
#include "lowtide/train/run_folder.h"
#include "tests/data/detection/small_voc.h"
#include "tests/data/image_files.h"
#include "tests/io/scratch.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

class OwnDataProgram : public testing::Test {
 protected:
  struct Finished {
    int code = 0;
    std::string text;  // stdout and stderr
  };

  Finished run(const std::vector<std::string>& arguments) {
    const fs::path log = folder_ / ("output-" + std::to_string(++commands_));
    Child child(LOWTIDE_PROGRAM, arguments, log);
    std::optional<int> code;
    while (!(code = child.ended())) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return {*code, read_text_file(log)};
  }

  void expect_mistake(const std::vector<std::string>& arguments, const std::string& message) {
    const Finished finished = run(arguments);
    EXPECT_EQ(finished.code, 2) << finished.text;
    EXPECT_TRUE(contains(finished.text, message));
    EXPECT_EQ(std::count(finished.text.begin(), finished.text.end(), '\n'), 1) << finished.text;
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  const ScratchFolder folder_;
  int commands_ = 0;
};

TEST_F(OwnDataProgram, BloodCells) {
  write_small_voc(folder_ / "cells");
  for (int i = 0; i < kSmallVocImages; ++i) {
    const fs::path file = folder_ / ("cells/Annotations/image" + std::to_string(i) + ".xml");
    std::string text = read_text_file(file);
    for (const auto& [from, to] : {std::pair{"<name>car<", "<name>WBC<"}, {"<name>person<", "<name>RBC<"}}) {
      if (text.find(from) != text.npos) text.replace(text.find(from), std::string(from).size(), to);
    }
    write_file(file, text);
  }
  const std::vector<std::string> data{"--data", "voc", "--data-dir", path("cells"), "--test-set", "train:2"};
  std::vector<std::string> train{
      "train",  "--train-set", "train:2", "--resize",       "40", "--model", "retinanet18", "--schedule",
      "static", "--bits",      "8",       "--steps",        "6",  "--batch", "2",           "--optimizer",
      "adam",   "--lr",        "0.01",    "--weight-decay", "0",  "--out",   path("run")};
  train.insert(train.end(), data.begin(), data.end());
  const Finished trained = run(train);
  ASSERT_EQ(trained.code, 0) << trained.text;
  EXPECT_TRUE(contains(trained.text, "objects of 3 classes"));
  // A large rate moves all scores up, above what is shown.
  const Finished found = run({"predict", "--run", path("run"), path("cells/JPEGImages/image0.jpg"), "--score",
                              "0.05", "--json", "--out", path("found.png")});
  ASSERT_EQ(found.code, 0) << found.text;
  const Json objects = Json::parse(found.text).at(0).at("objects");
  ASSERT_FALSE(objects.empty());
  for (const Json& object : objects)
    EXPECT_THAT(object.at("class").get<std::string>(), testing::AnyOf("WBC", "RBC", "boat"));
  const Finished evaluated = run({"eval", path("run"), "--json"});
  ASSERT_EQ(evaluated.code, 0) << evaluated.text;
  const Json result = read_run_file(RunPaths{folder_ / "run"}.result());
  EXPECT_EQ(Json::parse(evaluated.text).at("mAP"), result.at("test"));
  // The data is not needed to predict: the run knows its classes.
  fs::remove_all(folder_ / "cells/Annotations");
  EXPECT_EQ(run({"predict", "--run", path("run"), path("cells/JPEGImages/image0.jpg")}).code, 0);
}

TEST_F(OwnDataProgram, DataCheck) {
  for (const std::string part : {"train", "val"}) {
    write_file(folder_ / ("data/" + part + "/ant/1.png"), encode_png(gradient_image(8, 8, 3)));
    write_file(folder_ / ("data/" + part + "/bee/2.webp"), encode_webp(gradient_image(8, 8, 3)));
  }
  const std::vector<std::string> check{"data", "check", "--data", "folder", "--data-dir", path("data")};
  const Finished whole = run(check);
  EXPECT_EQ(whole.code, 0) << whole.text;
  EXPECT_TRUE(contains(whole.text, "2 images, 8 wide and 8 high", "ant 1, bee 1"));
  write_file(folder_ / "data/train/ant/3.jpg", "cut");
  const auto with = [&](const std::string& flag) {
    std::vector<std::string> arguments = check;
    arguments.push_back(flag);
    return arguments;
  };
  const Finished damaged = run(check);
  EXPECT_EQ(damaged.code, 2);
  EXPECT_TRUE(
      contains(damaged.text, "3.jpg: neither a JPEG", "1 damaged; mend or remove them, or train with "));
  EXPECT_EQ(run(with("--skip-damaged")).code, 0);
  const Finished json =
      run({"data", "check", "--data", "folder", "--data-dir", path("data"), "--skip-damaged", "--json"});
  ASSERT_EQ(json.code, 0) << json.text;
  EXPECT_EQ(Json::parse(json.text).at("damaged"), 1);
  EXPECT_EQ(Json::parse(json.text).at("parts").at(0).at("damaged").size(), 1u);
  fs::remove_all(folder_ / "data/val");
  const Finished part = run(with("--skip-damaged"));
  EXPECT_EQ(part.code, 2) << "what is not there cannot be skipped";
  EXPECT_TRUE(contains(part.text, "cannot be read: ", "a part of the data cannot be read"));
  expect_mistake({"data", "chekc"}, "unknown command 'data chekc'");
  expect_mistake({"data", "check"}, "data-dir is empty");
}

TEST_F(OwnDataProgram, EvalTakesARunOrACheckpoint) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += "step " + std::to_string(i % 7) + "\n";
  write_file(folder_ / "own.txt", text);
  const Finished trained = run({"train",    "--data",     "text",     "--data-dir", path("own.txt"),
                                "--tokens", "characters", "--model",  "lstm",       "--hidden",
                                "8",        "--length",   "8",        "--batch",    "4",
                                "--steps",  "4",          "--cycles", "2",          "--checkpoint-every",
                                "2",        "--out",      path("run")});
  ASSERT_EQ(trained.code, 0) << trained.text;
  const RunPaths paths{folder_ / "run"};
  const Json result = read_run_file(paths.result());
  const Finished last = run({"eval", path("run"), "--json"});
  ASSERT_EQ(last.code, 0) << last.text;
  EXPECT_EQ(Json::parse(last.text).at("perplexity"), result.at("test"));
  EXPECT_EQ(Json::parse(last.text).at("step"), 4);
  EXPECT_TRUE(Json::parse(last.text).contains("bits_per_character"));
  const Finished file = run({"eval", "--checkpoint", paths.checkpoint(2).string(), "--json"});
  EXPECT_EQ(Json::parse(file.text).at("step"), 2);

  expect_mistake({"eval"}, "expected one of RUN, a run folder, and --checkpoint FILE");
  expect_mistake({"eval", path("run"), "--checkpoint", paths.checkpoint(2).string()}, "expected one of RUN");
  expect_mistake({"eval", paths.checkpoint(2).string()}, "a file; expected a run folder, or --checkpoint");
  expect_mistake({"eval", folder_.path().string()}, "run.json");
  expect_mistake({"eval", path("run"), "--best"}, "kept no best weights");
  expect_mistake({"eval", path("run"), "--language", "de"},
                 "--language is for xnli; this run's data is text");
}

TEST_F(OwnDataProgram, EvalInAnotherLanguage) {
  write_file(folder_ / "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\n");
  write_file(folder_ / "multinli.train.en.tsv", "premise\thypo\tlabel\na\tb\tneutral\nb\ta\tentailment\n");
  for (const std::string part : {"dev", "test"}) {
    write_file(folder_ / (part + "-en.tsv"), "a\tb\tneutral\n");
    write_file(folder_ / (part + "-de.tsv"), "a\tb\tneutral\nb\ta\tneutral\n");
  }
  const Finished trained = run({"train",
                                "--data",
                                "xnli",
                                "--data-dir",
                                folder_.path().string(),
                                "--vocabulary",
                                path("vocab.txt"),
                                "--model",
                                "bert",
                                "--hidden",
                                "8",
                                "--heads",
                                "2",
                                "--length",
                                "8",
                                "--batch",
                                "2",
                                "--steps",
                                "2",
                                "--cycles",
                                "2",
                                "--out",
                                path("run")});
  ASSERT_EQ(trained.code, 0) << trained.text;
  const Finished german = run({"eval", path("run"), "--language", "de", "--json"});
  ASSERT_EQ(german.code, 0) << german.text;
  EXPECT_EQ(Json::parse(german.text).at("items"), 2);
  EXPECT_EQ(Json::parse(german.text).at("language"), "de");
  EXPECT_EQ(Json::parse(run({"eval", path("run"), "--json"}).text).at("items"), 1);
  expect_mistake({"eval", path("run"), "--language", "fr"}, "none of dev-fr.tsv");
}

}  // namespace
}  // namespace lowtide
