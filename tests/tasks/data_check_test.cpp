#include "lowtide/tasks/data_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/detection/small_voc.h"
#include "tests/data/image_files.h"
#include "tests/data/real_data.h"
#include "tests/io/scratch.h"

namespace lowtide {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

Recipe recipe_of(const std::string& data, const std::filesystem::path& folder) {
  Recipe recipe;
  recipe.data.format = data;
  recipe.data.dir = folder.string();
  return recipe;
}

TEST(DataCheck, ImagesByClassAndSize) {
  ScratchFolder folder;
  for (const std::string part : {"train", "val"}) {
    write_file(folder / (part + "/ant/1.jpg"), encode_jpeg(gradient_image(8, 12, 3)));
    write_file(folder / (part + "/ant/2.jpg"), "cut");
    write_file(folder / (part + "/bee/3.png"), encode_png(gradient_image(30, 5, 3)));
    write_file(folder / (part + "/bee/4.webp"), encode_webp(gradient_image(9, 7, 3)));
  }
  const DataCheck check = check_data(recipe_of("folder", folder.path()));
  ASSERT_EQ(check.parts.size(), 2u);
  const DataPart& train = check.parts[0];
  EXPECT_EQ(train.items, 3);
  EXPECT_THAT(train.classes, ElementsAre(Pair("ant", 1), Pair("bee", 2)));
  EXPECT_EQ(train.widths.least, 5);
  EXPECT_EQ(train.widths.most, 12);
  EXPECT_EQ(train.heights.least, 8);
  EXPECT_EQ(train.heights.most, 30);
  EXPECT_THAT(train.damaged, ElementsAre(HasSubstr("ant/2.jpg: neither a JPEG")));
  EXPECT_EQ(check.damaged(), 2u);
  EXPECT_FALSE(check.failed());
  const std::string text = to_text(check);
  EXPECT_TRUE(contains(text, "3 images, 5 to 12 wide and 8 to 30 high", "images by class: ant 1, bee 2",
                       "damaged: "));
  const Json json = to_json(check);
  EXPECT_EQ(json.at("damaged"), 2);
  EXPECT_EQ(json.at("parts").at(0).at("classes").at(1), (Json{{"class", "bee"}, {"images", 2}}));
  EXPECT_EQ(json.at("parts").at(0).at("widths"), (Json{5, 12}));
}

TEST(DataCheck, ObjectsByClass) {
  ScratchFolder folder;
  write_small_voc(folder.path());
  write_file(folder / "JPEGImages/image1.jpg", "cut");
  Recipe recipe = recipe_of("voc", folder.path());
  const DataCheck check = check_data(recipe);
  EXPECT_EQ(check.parts.at(0).items, kSmallVocImages - 1);
  EXPECT_EQ(check.parts.at(0).classes.at(6), (std::pair<std::string, std::int64_t>("car", 3)));
  EXPECT_EQ(check.parts.at(0).classes.at(14), (std::pair<std::string, std::int64_t>("person", 3)));
  EXPECT_EQ(check.damaged(), 2u);
  recipe.data.test_set = "none";
  const DataCheck failed = check_data(recipe);
  EXPECT_TRUE(failed.failed());
  EXPECT_THAT(failed.parts.at(1).failure, HasSubstr("none.txt"));
  EXPECT_TRUE(contains(to_text(failed), "test\n  cannot be read: "));
  EXPECT_EQ(failed.parts.at(0).items, kSmallVocImages - 1) << "the other part is told all the same";
}

TEST(DataCheck, TextAndPairs) {
  ScratchFolder folder;
  write_file(folder / "train.txt", "a b\n");
  write_file(folder / "valid.txt", "a\n");
  write_file(folder / "test.txt", "z\n");
  const DataCheck text = check_data(recipe_of("text", folder.path()));
  ASSERT_EQ(text.parts.size(), 3u);
  EXPECT_EQ(text.parts[0].items, 3);
  EXPECT_EQ(text.parts[2].items, 2);
  EXPECT_THAT(text.parts[0].note, HasSubstr("4 words"));
  std::filesystem::remove(folder / "test.txt");
  EXPECT_TRUE(check_data(recipe_of("text", folder.path())).failed());

  write_file(folder / "train.tsv", "a\tb\tyes\nc\td\tno\ne\tf\tyes\n");
  write_file(folder / "test.tsv", "a\tb\tyes\n");
  const DataCheck pairs = check_data(recipe_of("pairs", folder.path()));
  ASSERT_EQ(pairs.parts.size(), 2u);
  EXPECT_THAT(pairs.parts[0].classes, ElementsAre(Pair("no", 1), Pair("yes", 2)));
  EXPECT_THAT(pairs.parts[1].classes, ElementsAre(Pair("no", 0), Pair("yes", 1))) << "the training set's";
}

TEST(DataCheck, ManyClassesAreTold) {
  DataPart part{.name = "train", .item_name = "images", .items = 100, .counted = "images"};
  for (int i = 0; i < 40; ++i) part.classes.emplace_back(std::to_string(i), 2 + i % 3);
  EXPECT_TRUE(contains(to_text({{part}}), "2 to 4 images in each of 40 classes"));
}

// What the papers of these data sets say of them; nothing is damaged.
TEST(RealDataCheck, WhatIsThere) {
  LOWTIDE_NEEDS_DATA(data_folder() / "VOCdevkit");
  LOWTIDE_NEEDS_DATA(data_folder() / "entailment" / "SICK");
  LOWTIDE_NEEDS_DATA(data_folder() / "graphs" / "cora");
  const DataCheck voc = check_data(recipe_of("voc", data_folder() / "VOCdevkit"));
  EXPECT_EQ(voc.parts.at(0).items, 160);
  EXPECT_EQ(voc.damaged(), 0u);
  EXPECT_FALSE(voc.failed());
  const DataCheck sick = check_data(recipe_of("sick", data_folder() / "entailment" / "SICK"));
  EXPECT_THAT(sick.parts.at(0).classes,
              ElementsAre(Pair("entailment", 1299), Pair("neutral", 2536), Pair("contradiction", 665)));
  const DataCheck graph = check_data(recipe_of("ogb", data_folder() / "graphs" / "cora"));
  EXPECT_FALSE(graph.failed()) << graph.parts.at(0).failure;
  EXPECT_EQ(graph.parts.at(0).items, 2708);
  EXPECT_EQ(graph.parts.at(0).classes.size(), 7u);
}

}  // namespace
}  // namespace lowtide
