// Data sets of a user's own: any classes, any text, any labels, some of it damaged.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "lowtide/io/file.h"
#include "lowtide/tasks/task.h"
#include "lowtide/train/checkpoint.h"
#include "lowtide/train/run_folder.h"
#include "tests/data/detection/small_voc.h"
#include "tests/data/image_files.h"
#include "tests/io/scratch.h"
#include "tests/train/resumed.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

Recipe short_recipe(const std::string& data, const fs::path& folder) {
  Recipe recipe;
  recipe.data.format = data;
  recipe.data.dir = folder.string();
  recipe.precision.bits = "5:8";
  recipe.precision.cycles = 2;
  recipe.training.steps = 3;
  recipe.training.batch = 2;
  recipe.training.optimizer = "adam";
  recipe.training.lr = 1e-3;
  recipe.training.weight_decay = 0;
  recipe.running.log_every = 2;
  return recipe;
}

Json run_json(const fs::path& folder) { return read_run_file(RunPaths{folder}.run()); }

void replace_in_file(const fs::path& path, const std::string& from, const std::string& to) {
  std::string text = read_text_file(path);
  for (std::size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  write_atomically(path, std::string_view(text));
}

class OwnDetection : public ::testing::Test {
 protected:
  OwnDetection() {
    write_small_voc(folder_ / "cells");
    for (int i = 0; i < kSmallVocImages; ++i) {
      const fs::path path = folder_ / fmt::format("cells/Annotations/image{}.xml", i);
      replace_in_file(path, "<name>car<", "<name>WBC<");
      replace_in_file(path, "<name>person<", "<name>RBC<");
      replace_in_file(path, "<name>boat<", "<name>Platelets<");
    }
    recipe_ = short_recipe("voc", folder_ / "cells");
    recipe_.data.train_set = recipe_.data.test_set = "train:4";
    recipe_.data.resize = 40;
    recipe_.data.max_size = 64;
    recipe_.model.name = "retinanet18";
  }

  const ScratchFolder folder_;
  Recipe recipe_;
};

TEST_F(OwnDetection, TheClassesAreThoseOfTheTrainingSetAndStayWithTheRun) {
  expect_resumes_exactly(recipe_, folder_.path(), {2});
  EXPECT_EQ(run_json(folder_ / "integer/whole").at("recipe").at("classes"),
            (Json{"Platelets", "RBC", "WBC"}));
  const Json state = read_checkpoint_state(RunPaths{folder_ / "integer/whole"}.checkpoint(3));
  EXPECT_EQ(state.at("recipe").at("classes"), (Json{"Platelets", "RBC", "WBC"}));
  // Whoever evaluates elsewhere, where other classes occur, has the run's.
  const Recipe kept = recipe_from_json(state.at("recipe"), "state");
  replace_in_file(folder_ / "cells/Annotations/image1.xml", "<name>RBC<", "<name>Sickle<");
  EXPECT_TRUE(contains(user_error([&] { make_task(kept); }), "image1.xml:1: class \"Sickle\"",
                       "Platelets, RBC, WBC"));
}

TEST_F(OwnDetection, ClassesByKey) {
  recipe_.data.classes = {"WBC", "RBC", "Platelets", "Sickle"};
  recipe_.training.steps = recipe_.precision.cycles = 1;
  const auto task = make_task(recipe_);
  const Evaluation evaluation = task->evaluate(Split::kTest, {0, 0});
  EXPECT_EQ(evaluation.items, 4);
  EXPECT_GE(evaluation.metric, 0) << "a mean over the classes that there are";
  recipe_.data.classes = {"WBC", "Platelets"};
  EXPECT_TRUE(contains(user_error([&] { make_task(recipe_); }), "image1.xml", "class \"RBC\"", "--classes"));
}

TEST_F(OwnDetection, AClassThatOnlyTheTestSetHasIsNamed) {
  recipe_.data.train_set = "train:1";
  EXPECT_TRUE(
      contains(user_error([&] { make_task(recipe_); }), "image1.xml:1: class \"RBC\"", "Platelets, WBC"));
}

TEST_F(OwnDetection, VocsClassesAreNotWritten) {
  write_small_voc(folder_ / "voc");
  recipe_.data.dir = (folder_ / "voc").string();
  recipe_.training.steps = recipe_.precision.cycles = 1;
  train(recipe_, folder_ / "run");
  EXPECT_TRUE(run_json(folder_ / "run").at("recipe").at("classes").empty()) << "as in runs of old";
}

TEST_F(OwnDetection, DamagedImagesAreLeftOutAndCounted) {
  write_file(folder_ / "cells/JPEGImages/image1.jpg", "damaged");
  recipe_.training.steps = 2;
  EXPECT_TRUE(contains(user_error([&] { train(recipe_, folder_ / "stops"); }), "image1.jpg"));
  recipe_.data.skip_damaged = true;
  const Json result = train(recipe_, folder_ / "run");
  EXPECT_EQ(result.at("skipped"), (Json{{"train", 1}, {"test", 1}}));
  EXPECT_EQ(run_json(folder_ / "run").at("skipped"), (Json{{"train", 1}, {"test", 1}}));
  EXPECT_TRUE(contains(make_task(recipe_)->describe(), "3 images", "1 damaged images left out"));
}

class OwnImages : public ::testing::Test {
 protected:
  OwnImages() {
    for (const std::string part : {"train", "val"}) {
      for (int i = 0; i < 6; ++i) {
        write_file(folder_ / fmt::format("{}/{}/{}.png", part, i % 2 == 0 ? "dark" : "light", i),
                   encode_png(gradient_image(8 + i % 3, 8, 3)));
      }
    }
    recipe_ = short_recipe("folder", folder_.path());
    recipe_.data.augment = "random-resized-crop";
    recipe_.data.image_size = recipe_.data.resize = 8;
  }

  const ScratchFolder folder_;
  Recipe recipe_;
};

TEST_F(OwnImages, DamagedOnesAreLeftOutAndCounted) {
  write_file(folder_ / "train/dark/2.png", "damaged");
  recipe_.training.steps = 6;  // an epoch of all, and more
  EXPECT_TRUE(contains(user_error([&] { train(recipe_, folder_ / "stops"); }), "dark/2.png"));
  recipe_.data.skip_damaged = true;
  expect_resumes_exactly(recipe_, folder_.path(), {1, 4});
  EXPECT_EQ(run_json(folder_ / "integer/whole").at("skipped"), (Json{{"train", 1}, {"test", 0}}));
  EXPECT_EQ(make_task(recipe_)->steps_per_epoch(), 2.5);
  expect_run_independent_of_threads(recipe_, folder_.path());
}

TEST_F(OwnImages, ARunThatSkipsNothingDoesNotSayHowMany) {
  const Json result = train(recipe_, folder_ / "run");
  EXPECT_FALSE(result.contains("skipped"));
  EXPECT_FALSE(run_json(folder_ / "run").contains("skipped"));
}

// What a user meant who says --image-size alone.
TEST(ImageSize, NamesTheAugmentationThatMakesIt) {
  ScratchFolder folder;
  for (const auto& [prefix, count] : {std::pair{"train", 8}, {"t10k", 4}}) {
    write_file(folder / fmt::format("{}-images-idx3-ubyte", prefix), idx_images(count, 28, 28));
    std::vector<std::uint8_t> labels;
    for (int i = 0; i < count; ++i) labels.push_back(static_cast<std::uint8_t>(i % 2));
    write_file(folder / fmt::format("{}-labels-idx1-ubyte", prefix), idx_labels(labels));
  }
  Recipe recipe = short_recipe("idx", folder.path());
  const auto told = [&](const std::string& augment, int size, int padding, int resize) {
    recipe.data.augment = augment;
    recipe.data.image_size = size;
    recipe.data.padding = padding;
    recipe.data.resize = resize;
    return user_error([&] { make_task(recipe); });
  };
  EXPECT_TRUE(contains(told("none", 32, 4, 0),
                       "image-size is 32, but the images are 28x28 and augment is none",
                       "random-resized-crop", "pad-crop with --padding 2", "--resize 32"));
  EXPECT_TRUE(contains(told("none", 24, 4, 24), "pad-crop with --padding 0"));
  EXPECT_TRUE(contains(told("pad-crop", 40, 4, 40), "--padding 6 or more"));
  EXPECT_TRUE(contains(told("pad-crop", 32, 4, 0), "--resize 32 for evaluation"));
  EXPECT_TRUE(contains(told("random-resized-crop", 32, 4, 0), "--resize 32 for evaluation"));
  for (const auto& [augment, size, padding, resize] : {std::tuple{"none", 28, 4, 0},
                                                       {"none", 0, 4, 0},
                                                       {"pad-crop", 32, 2, 32},
                                                       {"random-resized-crop", 16, 0, 20}}) {
    recipe.data.augment = augment;
    recipe.data.image_size = size;
    recipe.data.padding = padding;
    recipe.data.resize = resize;
    recipe.training.steps = recipe.precision.cycles = 1;
    EXPECT_NO_THROW(train(recipe, folder / fmt::format("run-{}-{}", augment, size)));
  }
}

class OwnText : public ::testing::Test {
 protected:
  OwnText() {
    std::string text;
    for (int i = 0; i < 400; ++i) text += fmt::format("step {} of {}\n", i % 7, i % 5);
    write_file(folder_ / "own.txt", text);
    recipe_ = short_recipe("text", folder_ / "own.txt");
    recipe_.model.name = "lstm";
    recipe_.model.hidden = 12;
    recipe_.model.heads = 3;
    recipe_.data.length = 8;
    recipe_.training.batch = 4;
    recipe_.training.steps = 4;
  }

  const ScratchFolder folder_;
  Recipe recipe_;
};

TEST_F(OwnText, BothModelsTrainOnWordsAndCharacters) {
  for (const std::string model : {"lstm", "transformer"}) {
    for (const std::string tokens : {"words", "characters"}) {
      recipe_.model.name = model;
      recipe_.data.tokens = tokens;
      const fs::path place = folder_ / (model + tokens);
      expect_resumes_exactly(recipe_, place, {3});
      EXPECT_EQ(make_task(recipe_)->item_name(), tokens);
    }
  }
}

TEST_F(OwnText, CharactersHaveTheirBits) {
  recipe_.data.tokens = "characters";
  const Json result = train(recipe_, folder_ / "run");
  EXPECT_NEAR(result.at("test_bits_per_character").get<double>(), std::log2(result.at("test").get<double>()),
              1e-9);
  recipe_.data.tokens = "words";
  EXPECT_FALSE(train(recipe_, folder_ / "words").contains("test_bits_per_character"));
}

TEST_F(OwnText, TheVocabularyIsTheTrainingTexts) {
  // <unk>, step, of, <eos>, 0 to 6.
  EXPECT_TRUE(contains(make_task(recipe_)->describe(), "own.txt", "11 words"));
  recipe_.data.min_count = 100;  // 400 lines, of which nine tenths train: a digit occurs some 50 or 120 times
  EXPECT_TRUE(contains(make_task(recipe_)->describe(), "9 words"));
}

class OwnPairs : public ::testing::Test {
 protected:
  OwnPairs() {
    write_file(folder_ / "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\nc\nd\n");
    write_file(folder_ / "train.tsv", pairs(24, "tone"));
    write_file(folder_ / "dev.tsv", pairs(8, "tone"));
    recipe_ = short_recipe("pairs", folder_.path());
    recipe_.data.columns = {"first", "second", "tone"};
    recipe_.data.vocabulary = (folder_ / "vocab.txt").string();
    recipe_.model.name = "bert";
    recipe_.model.hidden = 8;
    recipe_.model.heads = 2;
    recipe_.data.length = 10;
    recipe_.training.batch = 8;
  }

  static std::string pairs(int count, const std::string& label) {
    std::string text = "tone\tsecond\tfirst\n";
    text.replace(0, 4, label);
    for (int i = 0; i < count; ++i) text += fmt::format("class {}\t{} b\tc a\n", i % 4, "abcd"[i % 4]);
    return text;
  }

  const ScratchFolder folder_;
  Recipe recipe_;
};

TEST_F(OwnPairs, AnyNumberOfClasses) {
  expect_resumes_exactly(recipe_, folder_.path(), {1, 3});
  EXPECT_EQ(run_json(folder_ / "integer/whole").at("recipe").at("classes"),
            (Json{"class 0", "class 1", "class 2", "class 3"}));
  const auto task = make_task(recipe_);
  EXPECT_EQ(task->model().named_parameters()["classifier.weight"].size(0), 4);
  EXPECT_TRUE(contains(task->describe(), "24 pairs of sentences, 4 classes", "dev.tsv is the test set"));
}

TEST_F(OwnPairs, ATestSetWithoutADevelopmentSetWillDo) {
  fs::rename(folder_ / "dev.tsv", folder_ / "test.tsv");
  auto task = make_task(recipe_);
  EXPECT_FALSE(task->has(Split::kValid));
  EXPECT_EQ(task->evaluate(Split::kTest, {0, 0}).items, 8);
  recipe_.data.validation = 4;
  EXPECT_EQ(make_task(recipe_)->evaluate(Split::kValid, {0, 0}).items, 4);
  write_file(folder_ / "test.tsv", pairs(8, "mood"));
  EXPECT_TRUE(contains(user_error([&] { make_task(recipe_); }), "test.tsv: no labels"));
  fs::remove(folder_ / "test.tsv");
  EXPECT_TRUE(contains(user_error([&] { make_task(recipe_); }), "none of valid.tsv, dev.tsv is there"));
}

TEST_F(OwnPairs, ALabelThatTrainingHasNotIsNamed) {
  replace_in_file(folder_ / "dev.tsv", "class 2", "class x");
  EXPECT_TRUE(
      contains(user_error([&] { make_task(recipe_); }), "dev.tsv:4: label \"class x\"", "class 0, class 1"));
}

// XNLI: trained in one language, tested in others.
TEST(TestLanguage, IsThatOfTheTestFilesAlone) {
  ScratchFolder folder;
  write_file(folder / "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\n");
  write_file(folder / "multinli.train.en.tsv", "premise\thypo\tlabel\na\tb\tneutral\nb\ta\tentailment\n");
  write_file(folder / "dev-en.tsv", "a\tb\tneutral\n");
  write_file(folder / "test-en.tsv", "a\tb\tneutral\n");
  write_file(folder / "dev-de.tsv", "a\tb\tneutral\nb\ta\tneutral\n");
  write_file(folder / "test-de.tsv", "a\tb\tneutral\nb\ta\tneutral\na\ta\tneutral\n");
  Recipe recipe = short_recipe("xnli", folder.path());
  recipe.data.vocabulary = (folder / "vocab.txt").string();
  recipe.model.name = "bert";
  recipe.model.hidden = 8;
  recipe.model.heads = 2;
  recipe.data.length = 10;
  EXPECT_EQ(make_task(recipe)->evaluate(Split::kTest, {0, 0}).items, 1);
  recipe.data.test_language = "de";
  const auto task = make_task(recipe);
  EXPECT_EQ(task->evaluate(Split::kTest, {0, 0}).items, 3);
  EXPECT_EQ(task->evaluate(Split::kValid, {0, 0}).items, 2);
  EXPECT_EQ(task->evaluate(Split::kTrain, {0, 0}).items, 2);
}

}  // namespace
}  // namespace lowtide
