// `lowtide predict` as a user runs it, with a detector that has hardly been trained: it finds something everywhere.
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "lowtide/base/json.h"
#include "lowtide/data/decode.h"
#include "lowtide/io/file.h"
#include "lowtide/recipe/recipe.h"
#include "lowtide/study/child.h"
#include "lowtide/train/run_folder.h"
#include "tests/data/detection/small_voc.h"
#include "tests/io/scratch.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

class PredictProgram : public testing::Test {
 protected:
  struct Finished {
    int code = 0;
    std::string text;  // stdout and stderr
  };

  PredictProgram() { write_small_voc(folder_ / "voc"); }

  Finished run(const std::vector<std::string>& arguments) {
    const fs::path log = folder_ / ("output-" + std::to_string(++commands_));
    Child child(LOWTIDE_PROGRAM, arguments, log);
    std::optional<int> code;
    while (!(code = child.ended())) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return {*code, read_text_file(log)};
  }

  // A large rate moves all scores up, above what is shown.
  void train() {
    Recipe recipe;
    recipe.data.format = "voc";
    recipe.data.dir = (folder_ / "voc").string();
    recipe.data.train_set = recipe.data.test_set = "train:2";
    recipe.data.resize = 40;
    recipe.model.name = "retinanet18";
    recipe.precision.schedule = "static";
    recipe.precision.bits = "8:8";
    recipe.training.steps = 6;
    recipe.training.batch = 2;
    recipe.training.optimizer = "adam";
    recipe.training.lr = 0.01;
    recipe.training.weight_decay = 0;
    std::ofstream(folder_ / "voc.toml") << to_toml(recipe);
    const Finished trained =
        run({"train", "--recipe", (folder_ / "voc.toml").string(), "--out", (folder_ / "run").string()});
    ASSERT_EQ(trained.code, 0) << trained.text;
  }

  void expect_mistake(const std::vector<std::string>& arguments, const std::string& message) {
    const Finished finished = run(arguments);
    EXPECT_EQ(finished.code, 2) << finished.text;
    EXPECT_TRUE(contains(finished.text, message));
    EXPECT_EQ(std::count(finished.text.begin(), finished.text.end(), '\n'), 1) << finished.text;
  }

  const ScratchFolder folder_;
  int commands_ = 0;
};

TEST_F(PredictProgram, DrawsWhatItSays) {
  train();
  const std::string run_folder = (folder_ / "run").string();
  const std::string image = (folder_ / "voc/JPEGImages/image0.jpg").string();
  const std::string other = (folder_ / "voc/JPEGImages/image1.jpg").string();
  const Finished json = run({"predict", "--run", run_folder, image, other, "--score", "0.05", "--json"});
  ASSERT_EQ(json.code, 0) << json.text;
  const Json found = Json::parse(json.text);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].at("image"), image);
  for (const Json& object : found[0].at("objects")) {
    EXPECT_GE(object.at("score").get<double>(), 0.05);
    EXPECT_LE(object.at("box").at(2).get<double>(), 80);
    EXPECT_LE(object.at("box").at(3).get<double>(), 60);
  }
  const Finished drawn = run(
      {"predict", "--run", run_folder, image, "--score", "0.05", "--out", (folder_ / "found.png").string()});
  ASSERT_EQ(drawn.code, 0) << drawn.text;
  const Image before = decode_image(read_file(image), image);
  const Image after = decode_image(read_file(folder_ / "found.png"), "found.png");
  EXPECT_EQ(after.height, before.height);
  EXPECT_EQ(after.width, before.width);
  EXPECT_EQ(after.pixels == before.pixels, found[0].at("objects").empty());
  ASSERT_EQ(run({"predict", "--run", run_folder, image, other, "--out", (folder_ / "both").string()}).code,
            0);
  EXPECT_TRUE(fs::exists(folder_ / "both" / "image0.png") && fs::exists(folder_ / "both" / "image1.png"));

  expect_mistake({"predict", "--run", run_folder, (folder_ / "voc.toml").string()},
                 "neither a JPEG nor a PNG");
  expect_mistake({"predict", "--run", run_folder, "/nowhere.jpg"}, "/nowhere.jpg");
}

// No drawing takes the place of an image, or of another drawing.
TEST_F(PredictProgram, DrawingsReplaceNothing) {
  const fs::path images = folder_ / "voc/JPEGImages", elsewhere = folder_ / "elsewhere";
  const std::string image = (images / "image0.jpg").string();
  const std::string before = read_text_file(image);
  expect_mistake({"predict", "--checkpoint", image, image, "--out", image}, "would take the place of");
  fs::create_directories(elsewhere);
  fs::copy_file(image, elsewhere / "image0.jpg");
  expect_mistake({"predict", "--checkpoint", image, image, (elsewhere / "image0.jpg").string(), "--out",
                  (folder_ / "drawn").string()},
                 "two images would be drawn on");
  EXPECT_FALSE(fs::exists(folder_ / "drawn"));
  EXPECT_EQ(read_text_file(image), before);
}

TEST_F(PredictProgram, MistakesAreOneLineAndExitCode2) {
  const std::string image = (folder_ / "voc/JPEGImages/image0.jpg").string();
  expect_mistake({"predict", image}, "expected one of --run FOLDER and --checkpoint FILE");
  expect_mistake({"predict", "--run", folder_.path().string(), image}, "no checkpoint in it");
  expect_mistake({"predict", "--checkpoint", image, image}, "image0.jpg");
  expect_mistake({"predict", "--run", folder_.path().string()}, "IMAGE");
  expect_mistake({"predict", "--run", folder_.path().string(), image, "--score", "2"}, "--score");
}

}  // namespace
}  // namespace lowtide
