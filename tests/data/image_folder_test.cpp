#include "lowtide/data/image_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lowtide/data/damaged.h"
#include "tests/data/image_files.h"

namespace lowtide {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string open_error(const ScratchFolder& folder, Split split) {
  return user_error([&] { open_image_dataset("folder", folder.path(), split); });
}

std::string picture() { return encode_jpeg(gradient_image(8, 12, 3)); }

TEST(ImageFolder, ClassesAreNumberedByName) {
  ScratchFolder folder;
  write_file(folder / "train/zebra/b.JPEG", picture());
  write_file(folder / "train/zebra/a.jpg", encode_jpeg(gradient_image(5, 6, 1)));
  write_file(folder / "train/ant/1.PNG", encode_png({1, 1, 3, {1, 2, 3}}));
  write_file(folder / "train/ant/notes.txt", "not an image, and not asked for");
  write_file(folder / "train/.cache/x.jpg", "hidden");
  write_file(folder / "train/list.txt", "not a class");
  write_file(folder / "val/ant/2.png", encode_png({1, 1, 3, {4, 5, 6}}));
  write_file(folder / "val/zebra/3.jpeg", picture());
  const auto train = open_image_dataset("folder", folder.path(), Split::kTrain);
  ASSERT_EQ(train->size(), 3);
  EXPECT_EQ(train->classes(), 2);
  EXPECT_EQ(train->channels(), 3);
  EXPECT_EQ(train->height(), 0);
  EXPECT_EQ(train->label(0), 0);
  EXPECT_EQ(train->image(0).pixels, (std::vector<std::uint8_t>{1, 2, 3}));
  EXPECT_EQ(train->label(1), 1);
  EXPECT_EQ(train->item_name(1), (folder / "train/zebra/a.jpg").string());
  EXPECT_EQ(train->image(1).channels, 3);  // a grey one among the coloured
  EXPECT_EQ(train->image(2).width, 12);
  EXPECT_EQ(train->class_name(1), "zebra");
  EXPECT_THAT(train->describe(), HasSubstr("3 images, 2 classes, 1 files of other kinds not read"));
  const auto val = open_image_dataset("folder", folder.path(), Split::kTest);
  EXPECT_EQ(val->size(), 2);
  EXPECT_EQ(val->label(1), 1);
}

TEST(ImageFolder, WebpAndTurnedPictures) {
  ScratchFolder folder;
  const Image image = gradient_image(8, 12, 3);
  write_file(folder / "train/ant/1.webp", encode_webp(image));
  write_file(folder / "train/ant/2.WEBP", encode_webp(image));
  write_file(folder / "train/ant/3.jpg", with_orientation(encode_jpeg(image), 8));
  const auto train = open_image_dataset("folder", folder.path(), Split::kTrain);
  ASSERT_EQ(train->size(), 3);
  EXPECT_EQ(train->image(1).pixels, image.pixels);
  EXPECT_EQ(train->image(2).height, 12);
}

// What is left out does not depend on which thread met it.
TEST(Damaged, ImagesMayBeLeftOut) {
  ScratchFolder folder;
  for (int i = 0; i < 40; ++i) {
    const std::string name = std::to_string(100 + i) + ".jpg";
    write_file(folder / ("train/" + std::string(i < 20 ? "ant/" : "bee/") + name),
               i % 7 == 3 ? picture().substr(0, 200) : picture());
  }
  const std::shared_ptr<const ImageDataset> all = open_image_dataset("folder", folder.path(), Split::kTrain);
  for (int attempt = 0; attempt < 3; ++attempt) {
    std::vector<std::string> damaged;
    const auto whole = without_damaged(all, damaged);
    ASSERT_EQ(whole->size(), 34);
    ASSERT_EQ(damaged.size(), 6u);
    for (std::size_t i = 0; i < damaged.size(); ++i)
      EXPECT_THAT(damaged[i], HasSubstr(std::to_string(103 + 7 * i) + ".jpg: damaged JPEG"));
    EXPECT_THAT(whole->item_name(3), HasSubstr("104.jpg"));
    EXPECT_EQ(whole->label(33), 1);
    EXPECT_EQ(whole->class_name(1), "bee");
    EXPECT_EQ(whole->image(33).width, 12);
    EXPECT_THAT(whole->describe(), HasSubstr("40 images, 2 classes, 6 of them damaged and left out"));
  }
}

TEST(Damaged, AllOfThemAreNoData) {
  ScratchFolder folder;
  write_file(folder / "train/ant/1.jpg", "x");
  std::vector<std::string> damaged;
  EXPECT_THAT(user_error([&] {
                without_damaged(open_image_dataset("folder", folder.path(), Split::kTrain), damaged);
              }),
              AllOf(StartsWith("all 1 images are damaged, the first: "), HasSubstr("1.jpg: neither")));
}

TEST(Damaged, OtherFailuresAreNoDamage) {
  EXPECT_THROW(find_damaged(9, [](std::int64_t i) { i == 5 ? throw std::bad_alloc() : void(); }),
               std::bad_alloc);
}

TEST(ImageFolder, WhatIsMissingIsNamed) {
  ScratchFolder folder;
  EXPECT_THAT(open_error(folder, Split::kTrain),
              StartsWith((folder / "train").string() + ": cannot be listed"));
  std::filesystem::create_directories(folder / "train");
  EXPECT_THAT(open_error(folder, Split::kTrain), HasSubstr("no folders in it; expected one for each class"));
  std::filesystem::create_directories(folder / "train/ant");
  EXPECT_THAT(open_error(folder, Split::kTrain),
              StartsWith((folder / "train/ant/").string() + ": no images of this class"));
  write_file(folder / "train/ant/1.jpg", picture());
  write_file(folder / "val/ant/1.jpg", picture());
  write_file(folder / "val/bee/1.jpg", picture());
  EXPECT_THAT(open_error(folder, Split::kTest),
              StartsWith((folder / "val/bee").string() + ": a class that "));
  write_file(folder / "train/bee/1.jpg", picture());
  write_file(folder / "train/cat/1.jpg", picture());
  EXPECT_THAT(open_error(folder, Split::kTest),
              StartsWith((folder / "val/cat").string() + ": no such folder"));
}

TEST(ImageFolder, DamagedImagesAreNamedWhenRead) {
  ScratchFolder folder;
  write_file(folder / "train/ant/1.jpg", "<html>not found</html>");
  write_file(folder / "train/ant/2.jpg", picture().substr(0, 300));
  const auto train = open_image_dataset("folder", folder.path(), Split::kTrain);
  EXPECT_THAT(user_error([&] { train->image(0); }),
              StartsWith((folder / "train/ant/1.jpg").string() + ": neither a JPEG nor a PNG"));
  EXPECT_THAT(user_error([&] { train->image(1); }),
              StartsWith((folder / "train/ant/2.jpg").string() + ": damaged JPEG"));
}

void write_tiny_imagenet(const ScratchFolder& folder) {
  write_file(folder / "train/n02/images/n02_0.JPEG", picture());
  write_file(folder / "train/n02/n02_boxes.txt", "n02_0.JPEG\t0\t0\t1\t1\n");
  write_file(folder / "train/n01/images/n01_0.JPEG", picture());
  write_file(folder / "val/images/val_0.JPEG", picture());
  write_file(folder / "val/images/val_1.JPEG", picture());
  write_file(folder / "val/val_annotations.txt",
             "val_1.JPEG\tn02\t0\t0\t9\t9\r\nval_0.JPEG\tn01\t0\t0\t9\t9\r\n");
}

TEST(TinyImagenet, IsRecognised) {
  ScratchFolder folder;
  write_tiny_imagenet(folder);
  for (const std::string format : {"folder", "tiny-imagenet"}) {
    const auto train = open_image_dataset(format, folder.path(), Split::kTrain);
    ASSERT_EQ(train->size(), 2);
    EXPECT_EQ(train->item_name(0), (folder / "train/n01/images/n01_0.JPEG").string());
    const auto val = open_image_dataset(format, folder.path(), Split::kTest);
    ASSERT_EQ(val->size(), 2);
    EXPECT_EQ(val->item_name(0), (folder / "val/images/val_1.JPEG").string());
    EXPECT_EQ(val->label(0), 1);
    EXPECT_EQ(val->label(1), 0);
  }
}

TEST(TinyImagenet, AnnotationsMatchTheImages) {
  ScratchFolder folder;
  write_tiny_imagenet(folder);
  const auto path = folder / "val/val_annotations.txt";
  const auto error = [&](const std::string& text) {
    write_file(path, text);
    return open_error(folder, Split::kTest);
  };
  EXPECT_THAT(error("val_0.JPEG\tn01\n"), HasSubstr("classes of 1 images; expected 2"));
  EXPECT_THAT(error("val_0.JPEG\tn01\nval_9.JPEG\tn01\n"), HasSubstr("val_9.JPEG: no such image"));
  EXPECT_THAT(error("val_0.JPEG\tn03\n"), HasSubstr("val_0.JPEG is of class n03; expected a class of"));
  EXPECT_THAT(error("val_0.JPEG\tn01\nval_0.JPEG\tn02\n"), HasSubstr(":2: val_0.JPEG for the second time"));
  EXPECT_THAT(error("val_0.JPEG\tn01\nval_1.JPEG\n"),
              HasSubstr(":2: expected a file name, a tab and a class"));
  EXPECT_THAT(error("../x.JPEG\tn01\n"), HasSubstr(":1: expected a file name"));
  EXPECT_THAT(error(""), HasSubstr("empty; expected the class of every image"));
}

}  // namespace
}  // namespace lowtide
