// The real files, where they are installed; skipped elsewhere.

#include "tests/data/real_data.h"

#include <gtest/gtest.h>

#include <numeric>

#include "lowtide/data/loader.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

struct Survey {
  std::vector<std::int64_t> of_class;
  double mean = 0;  // of all values, in 0..1
  std::int64_t grey = 0;
};

Survey survey(const ImageDataset& dataset) {
  Survey result;
  result.of_class.resize(static_cast<std::size_t>(dataset.classes()));
  for (std::int64_t i = 0; i < dataset.size(); ++i) {
    ++result.of_class.at(static_cast<std::size_t>(dataset.label(i)));
    const Image image = dataset.image(i);
    const double sum = std::accumulate(image.pixels.begin(), image.pixels.end(), 0.0);
    result.mean +=
        sum / static_cast<double>(image.pixels.size()) / 255.0 / static_cast<double>(dataset.size());
    bool grey = image.channels == 3;
    for (std::size_t p = 0; grey && p < image.pixels.size(); p += 3) {
      grey = image.pixels[p] == image.pixels[p + 1] && image.pixels[p] == image.pixels[p + 2];
    }
    result.grey += grey;
  }
  return result;
}

TEST(RealData, FashionMnist) {
  const fs::path folder = "/usr/share/datasets/fashion-mnist";
  if (!fs::exists(folder)) GTEST_SKIP() << "needs " << folder << " (Debian package dataset-fashion-mnist)";
  for (const auto& [split, size] : {std::pair{Split::kTrain, 60000}, {Split::kTest, 10000}}) {
    const auto dataset = open_image_dataset("idx", folder, split);
    ASSERT_EQ(dataset->size(), size);
    EXPECT_EQ(dataset->height(), 28);
    EXPECT_EQ(dataset->width(), 28);
    const Survey found = survey(*dataset);
    for (const std::int64_t count : found.of_class) EXPECT_EQ(count, size / 10);
    EXPECT_NEAR(found.mean, 0.2860, 0.002);  // the training set's well-known mean
  }
  EXPECT_EQ(open_image_dataset("idx", folder, Split::kTrain)->label(0), 9);  // an ankle boot comes first
}

TEST(RealData, Cifar10) {
  const fs::path folder = from_environment("LOWTIDE_CIFAR10_DIR", "");
  if (folder.empty()) GTEST_SKIP() << "needs CIFAR-10's binary files in $LOWTIDE_CIFAR10_DIR";
  for (const auto& [split, size] : {std::pair{Split::kTrain, 50000}, {Split::kTest, 10000}}) {
    const auto dataset = open_image_dataset("cifar10", folder, split);
    ASSERT_EQ(dataset->size(), size);
    const Survey found = survey(*dataset);
    for (const std::int64_t count : found.of_class) EXPECT_EQ(count, size / 10);
    EXPECT_NEAR(found.mean, (0.4914 + 0.4822 + 0.4465) / 3, 0.005);
  }
  EXPECT_EQ(open_image_dataset("cifar10", folder, Split::kTrain)->label(0), 6);  // a frog comes first
}

TEST(RealData, TinyImagenet) {
  const fs::path folder = data_folder() / "tiny-imagenet-200";
  if (!fs::exists(folder))
    GTEST_SKIP() << "needs " << folder << " (a part of Tiny-ImageNet; see $LOWTIDE_DATA_DIR)";
  std::int64_t grey = 0;
  for (const auto& [split, size] : {std::pair{Split::kTrain, 5000}, {Split::kTest, 500}}) {
    const auto dataset = open_image_dataset("tiny-imagenet", folder, split);
    ASSERT_EQ(dataset->size(), size);
    ASSERT_EQ(dataset->classes(), 10);
    const Survey found = survey(*dataset);
    for (const std::int64_t count : found.of_class) EXPECT_EQ(count, size / 10);
    grey += found.grey;
  }
  EXPECT_GE(grey, 77);  // that many files are grey-scale, and a coloured one may hold only greys
  EXPECT_LE(grey, 120);
}

TEST(RealData, TinyImagenetThroughTheLoader) {
  const fs::path folder = data_folder() / "tiny-imagenet-200";
  if (!fs::exists(folder))
    GTEST_SKIP() << "needs " << folder << " (a part of Tiny-ImageNet; see $LOWTIDE_DATA_DIR)";
  const std::shared_ptr<const ImageDataset> dataset = open_image_dataset("folder", folder, Split::kTest);
  std::vector<std::int64_t> indices(static_cast<std::size_t>(dataset->size()));
  std::iota(indices.begin(), indices.end(), 0);
  AugmentSpec spec;
  spec.kind = AugmentSpec::Kind::kResizeCentreCrop;
  spec.resize = 64;
  spec.out_height = spec.out_width = 56;
  spec.mean = {0.485f, 0.456f, 0.406f};
  spec.std = {0.229f, 0.224f, 0.225f};
  EvalLoader loader(dataset, indices, spec, {128, 2, 4});
  std::int64_t items = 0;
  while (const auto batch = loader.next()) {
    items += batch->labels.size(0);
    EXPECT_TRUE(batch->images.isfinite().all().item<bool>());
    EXPECT_LT(batch->images.mean().abs().item<float>(), 0.5);
    EXPECT_NEAR(batch->images.std().item<float>(), 1.0, 0.4);
  }
  EXPECT_EQ(items, 500);
}

}  // namespace
}  // namespace lowtide
