#include "lowtide/data/image_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/image_files.h"

namespace lowtide {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string open_error(const std::string& format, const std::filesystem::path& folder, Split split) {
  return user_error([&] { open_image_dataset(format, folder, split); });
}

void write_idx(const ScratchFolder& folder) {
  write_file(folder / "train-images-idx3-ubyte", idx_images(3, 2, 4));
  write_gzip(folder / "train-labels-idx1-ubyte.gz", idx_labels({7, 0, 9}));
  write_gzip(folder / "t10k-images-idx3-ubyte.gz", idx_images(2, 2, 4, 100));
  write_file(folder / "t10k-labels-idx1-ubyte", idx_labels({1, 2}));
}

TEST(Idx, ReadsPlainAndGzip) {
  ScratchFolder folder;
  write_idx(folder);
  const auto train = open_image_dataset("idx", folder.path(), Split::kTrain);
  EXPECT_EQ(train->size(), 3);
  EXPECT_EQ(train->classes(), 10);
  EXPECT_EQ(train->channels(), 1);
  EXPECT_EQ(train->height(), 2);
  EXPECT_EQ(train->width(), 4);
  EXPECT_EQ(train->label(2), 9);
  EXPECT_EQ(train->image(1).pixels, (std::vector<std::uint8_t>{8, 9, 10, 11, 12, 13, 14, 15}));
  EXPECT_THAT(train->describe(), HasSubstr("3 images of 4x2, 1 channel, 10 classes"));
  const auto test = open_image_dataset("idx", folder.path(), Split::kTest);
  EXPECT_EQ(test->size(), 2);
  EXPECT_EQ(test->label(0), 1);
  EXPECT_EQ(test->image(0).pixels[0], 100);
  EXPECT_EQ(open_image_dataset("idx", folder.path(), Split::kValid)->size(), 3);
}

TEST(Idx, DamagedFilesAreNamed) {
  ScratchFolder folder;
  const auto images = folder / "train-images-idx3-ubyte";
  const auto labels = folder / "train-labels-idx1-ubyte.gz";
  const auto error = [&] { return open_error("idx", folder.path(), Split::kTrain); };
  EXPECT_THAT(error(), StartsWith(images.string() + ": no such file, nor with .gz"));
  write_idx(folder);

  const std::string good = idx_images(3, 2, 4);
  write_file(images, good.substr(0, good.size() - 1));
  EXPECT_THAT(error(), StartsWith(images.string() + ": 23 bytes of data, and its header promises 24"));
  write_file(images, good + "x");
  EXPECT_THAT(error(), HasSubstr("holds 41 bytes, more than the 40 expected"));
  write_file(images, good.substr(0, 10));
  EXPECT_THAT(error(), HasSubstr("10 bytes; expected an IDX file with a header of 16"));
  write_file(images, idx_labels(std::vector<std::uint8_t>(30)));
  EXPECT_THAT(error(), HasSubstr("begins with 00000801; expected 00000803"));
  write_file(images, idx_images(0, 2, 4));
  EXPECT_THAT(error(), HasSubstr("header promises 0"));
  // 2^32 − 1 images of 65,535 × 65,535: no product of them may wrap around to the size of the file.
  write_file(images, std::string("\0\0\x08\x03\xff\xff\xff\xff\0\0\xff\xff\0\0\xff\xff", 16) + "x");
  EXPECT_THAT(error(), HasSubstr("its header promises 18446181123756261391"));
  write_file(images, std::string("\0\0\x08\x03\0\0\0\1\0\1\0\0\0\0\0\1", 16) + "x");
  EXPECT_THAT(error(), HasSubstr("images of 1x65536; expected at most 65535 a side"));

  write_file(images, good);
  write_gzip(labels, idx_labels({1, 10, 2}));
  EXPECT_THAT(error(), StartsWith(labels.string() + ": label 10 of image 1 is out of range; expected 0..9"));
  write_gzip(labels, idx_labels({1, 2}));
  EXPECT_THAT(error(), StartsWith(labels.string() + ": 2 labels; expected 3"));
  write_gzip(labels, idx_labels({1, 2, 3}) + std::string(10'000'000, '\0'));
  EXPECT_THAT(error(), StartsWith(labels.string() + ": holds more than the 11 bytes expected"));
  write_gzip(labels, idx_labels(std::vector<std::uint8_t>(1000, 3)));
  std::filesystem::resize_file(labels, std::filesystem::file_size(labels) - 9);
  EXPECT_THAT(error(), StartsWith(labels.string() + ": "));
  std::filesystem::remove(labels);
  EXPECT_THAT(error(), HasSubstr("train-labels-idx1-ubyte: no such file"));
}

TEST(Cifar, ReadsTheTenClasses) {
  ScratchFolder folder;
  const auto place = folder / "cifar-10-batches-bin";
  for (int batch = 1; batch <= 5; ++batch) {
    std::string records = cifar_record(std::string(1, static_cast<char>(batch)), 10, 20, 30);
    records += cifar_record(std::string(1, 9), 1, 2, static_cast<std::uint8_t>(batch));
    write_file(place / ("data_batch_" + std::to_string(batch) + ".bin"), records);
  }
  write_file(place / "test_batch.bin", cifar_record(std::string(1, 4), 5, 6, 7));
  for (const auto& path : {folder.path(), place}) {  // the folder itself, or the one that holds it
    const auto train = open_image_dataset("cifar10", path, Split::kTrain);
    EXPECT_EQ(train->size(), 10);
    EXPECT_EQ(train->classes(), 10);
    EXPECT_EQ(train->label(4), 3);
    const Image image = train->image(9);
    EXPECT_EQ(image.height, 32);
    EXPECT_EQ(image.channels, 3);
    EXPECT_EQ(image.pixels.size(), 3072u);
    EXPECT_EQ(std::vector<std::uint8_t>(image.pixels.end() - 6, image.pixels.end()),
              (std::vector<std::uint8_t>{1, 2, 5, 1, 2, 5}));
    EXPECT_EQ(open_image_dataset("cifar10", path, Split::kTest)->label(0), 4);
  }
}

TEST(Cifar, TakesTheFineOfHundredClasses) {
  ScratchFolder folder;
  write_file(folder / "train.bin", cifar_record({19, 99}, 1, 2, 3) + cifar_record({0, 42}, 4, 5, 6));
  write_file(folder / "test.bin", cifar_record({3, 7}, 1, 2, 3));
  const auto train = open_image_dataset("cifar100", folder.path(), Split::kTrain);
  EXPECT_EQ(train->size(), 2);
  EXPECT_EQ(train->classes(), 100);
  EXPECT_EQ(train->label(0), 99);
  EXPECT_EQ(train->label(1), 42);
  EXPECT_EQ(train->image(1).pixels[1], 5);
  EXPECT_EQ(open_image_dataset("cifar100", folder.path(), Split::kTest)->label(0), 7);
}

TEST(Cifar, PixelsAreInterleavedFromPlanes) {
  ScratchFolder folder;
  std::string record(1, 0);
  for (int i = 0; i < 3072; ++i) record.push_back(static_cast<char>(i % 251));
  write_file(folder / "test_batch.bin", record);
  const Image image = open_image_dataset("cifar10", folder.path(), Split::kTest)->image(0);
  for (int y = 0; y < 32; ++y) {
    for (int x = 0; x < 32; ++x) {
      for (int c = 0; c < 3; ++c) ASSERT_EQ(image.row(y)[3 * x + c], (1024 * c + 32 * y + x) % 251);
    }
  }
}

TEST(Cifar, DamagedFilesAreNamed) {
  ScratchFolder folder;
  const auto path = folder / "test_batch.bin";
  const auto error = [&] { return open_error("cifar10", folder.path(), Split::kTest); };
  EXPECT_THAT(error(), StartsWith(path.string() + ": no such file; expected CIFAR-10 in its binary version"));
  const std::string record = cifar_record(std::string(1, 4), 5, 6, 7);
  write_file(path, record + record.substr(1));
  EXPECT_THAT(error(), StartsWith(path.string() + ": 6145 bytes; expected CIFAR-10 records of 3073 bytes"));
  write_file(path, "");
  EXPECT_THAT(error(), HasSubstr(": 0 bytes; expected"));
  write_file(path, record + cifar_record(std::string(1, 10), 5, 6, 7));
  EXPECT_THAT(error(), HasSubstr("label 10 of record 1 is out of range; expected 0..9"));
  write_file(folder / "test.bin", cifar_record({20, 0}, 5, 6, 7));
  EXPECT_THAT(open_error("cifar100", folder.path(), Split::kTest),
              HasSubstr("coarse label 20 of record 0 is out of range; expected 0..19"));
  for (int batch = 1; batch <= 5; ++batch) {
    write_file(folder / ("data_batch_" + std::to_string(batch) + ".bin"),
               batch == 3 ? record : record + record);
  }
  EXPECT_THAT(open_error("cifar10", folder.path(), Split::kTrain),
              HasSubstr("data_batch_3.bin: 1 records; expected 2 as in data_batch_1.bin"));
}

TEST(OpenImageDataset, SaysWhatThereIs) {
  EXPECT_THAT(open_error("mnist", ".", Split::kTrain),
              HasSubstr("'mnist' is not known; expected idx, cifar10, cifar100, folder or tiny-imagenet"));
  EXPECT_THAT(open_error("idx", "/no/such", Split::kTrain),
              StartsWith("/no/such: no such folder; expected one"));
}

}  // namespace
}  // namespace lowtide
