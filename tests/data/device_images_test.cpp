// Batches made on a device of resident bytes are the loader's to the bit. On the CPU here; on a GPU where there is one.
#include "lowtide/data/device_images.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>

#include <numeric>

#include "lowtide/data/damaged.h"
#include "lowtide/data/memory_dataset.h"
#include "tests/data/image_files.h"

namespace lowtide {
namespace {

using ::testing::StartsWith;
using Kind = AugmentSpec::Kind;

const torch::Device kCpu = torch::kCPU;

// Every pixel of every image has a value of its own, as far as a byte goes.
std::shared_ptr<const ImageDataset> some_dataset(int items, int channels) {
  LabelledImages images{6, 5, channels, {}, {}};
  for (int i = 0; i < items; ++i) {
    images.labels.push_back(static_cast<std::uint8_t>(i % 7));
    for (int p = 0; p < 6 * 5 * channels; ++p)
      images.pixels.push_back(static_cast<std::uint8_t>(37 * i + 11 * p));
  }
  return std::make_shared<MemoryDataset>("some", std::move(images), 7);
}

std::vector<std::int64_t> numbers(std::int64_t count) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

AugmentSpec make_spec(Kind kind, int height, int width, int padding, bool flip) {
  AugmentSpec spec;
  spec.kind = kind;
  spec.padding = padding;
  spec.flip = flip;
  spec.out_height = height;
  spec.out_width = width;
  return spec;
}

// The recipes' own, crops larger and smaller than the image, and a border so wide that a crop may miss the image.
std::vector<AugmentSpec> all_specs(int channels) {
  std::vector<AugmentSpec> specs;
  for (const bool flip : {false, true}) {
    specs.push_back(make_spec(Kind::kNone, 6, 5, 0, flip));
    specs.push_back(make_spec(Kind::kPadCrop, 6, 5, 2, flip));
    specs.push_back(make_spec(Kind::kPadCrop, 9, 7, 3, flip));
    specs.push_back(make_spec(Kind::kPadCrop, 3, 4, 0, flip));
    specs.push_back(make_spec(Kind::kPadCrop, 4, 3, 8, flip));
  }
  const std::size_t plain = specs.size();
  for (std::size_t i = 0; i < plain; ++i) {
    AugmentSpec spec = specs[i];
    const auto values = static_cast<std::size_t>(channels);
    spec.mean = std::vector<float>{0.4914f, 0.4822f, 0.4465f};
    spec.std = std::vector<float>{0.2470f, 0.2435f, 0.2616f};
    spec.mean.resize(values);
    spec.std.resize(values);
    specs.push_back(spec);
  }
  return specs;
}

// To the bit: a zero's sign counts, and so does the order in memory.
testing::AssertionResult same(const Batch& here, const Batch& there) {
  if (here.images.sizes() != there.images.sizes() || here.images.strides() != there.images.strides())
    return testing::AssertionFailure() << here.images.sizes() << " and " << there.images.sizes();
  if (!here.images.view(torch::kInt32).equal(there.images.cpu().view(torch::kInt32)))
    return testing::AssertionFailure() << "other images";
  if (there.labels.scalar_type() != torch::kInt64 || !here.labels.equal(there.labels.cpu()))
    return testing::AssertionFailure() << "other labels";
  return testing::AssertionSuccess();
}

Batch next(StaticBatches& batches) {
  batches.prepare();
  return batches.batch();
}

// Four epochs and more of a part of the data set, in batches that do not divide it, and one larger than it.
void expect_the_loaders_stream(torch::Device device) {
  for (const int channels : {1, 3}) {
    const auto dataset = some_dataset(40, channels);
    const auto pixels = std::make_shared<DevicePixels>(dataset, device);
    std::vector<std::int64_t> indices = numbers(40);
    indices.erase(indices.begin() + 5, indices.begin() + 12);
    for (const AugmentSpec& spec : all_specs(channels)) {
      for (const std::int64_t size : {1, 7, 16, 50}) {
        TrainLoader loader(dataset, indices, 5, spec, {size, 1, 2});
        DeviceImages images(pixels, indices, 5, spec, {size, 1, 2});
        EXPECT_EQ(images.position(), 0);
        for (int i = 0; i * size < 140; ++i) {
          ASSERT_TRUE(same(loader.next(), next(images))) << size << " a batch, batch " << i;
          ASSERT_EQ(images.position(), loader.position());
          ASSERT_EQ(images.state(), loader.state());
        }
      }
    }
  }
}

void expect_one_address(StaticBatches& batches) {
  const Batch first = next(batches);
  for (int i = 0; i < 5; ++i) {
    const Batch batch = next(batches);
    EXPECT_EQ(batch.images.data_ptr(), first.images.data_ptr());
    EXPECT_EQ(batch.labels.data_ptr(), first.labels.data_ptr());
  }
}

void expect_the_eval_loaders_pass(torch::Device device) {
  for (const int channels : {1, 3}) {
    const auto dataset = some_dataset(23, channels);
    const auto pixels = std::make_shared<DevicePixels>(dataset, device);
    for (const AugmentSpec& spec : all_specs(channels)) {
      EvalLoader loader(dataset, {22, 3, 4, 11, 0, 7, 8}, spec, {3, 1, 2});
      DeviceEvalImages images(pixels, {22, 3, 4, 11, 0, 7, 8}, spec, {3, 1, 2});
      for (int pass = 0; pass < 2; ++pass) {
        std::vector<std::int64_t> sizes;
        while (const auto expected = loader.next()) {
          const auto batch = images.next();
          ASSERT_TRUE(batch && same(*expected, *batch));
          sizes.push_back(batch->labels.size(0));
        }
        EXPECT_EQ(sizes, (std::vector<std::int64_t>{3, 3, 1}));
        EXPECT_FALSE(images.next().has_value());
        loader.rewind();
        images.rewind();
      }
    }
  }
}

TEST(DeviceImages, TheLoadersStream) { expect_the_loaders_stream(kCpu); }

TEST(DeviceImages, BatchesStayWhereTheyAre) {
  const auto pixels = std::make_shared<DevicePixels>(some_dataset(20, 3), kCpu);
  DeviceImages images(pixels, numbers(20), 1, make_spec(Kind::kPadCrop, 6, 5, 2, true), {8, 1, 2});
  expect_one_address(images);
}

// A captured graph replays batch() alone: preparing is what counts, and asking twice changes nothing.
TEST(DeviceImages, PreparingMovesOn) {
  const auto dataset = some_dataset(20, 3);
  const AugmentSpec spec = make_spec(Kind::kPadCrop, 6, 5, 2, true);
  TrainLoader loader(dataset, numbers(20), 1, spec, {8, 1, 2});
  DeviceImages images(std::make_shared<DevicePixels>(dataset, kCpu), numbers(20), 1, spec, {8, 1, 2});
  loader.next();
  images.prepare();
  images.prepare();
  EXPECT_EQ(images.position(), 16);
  const Batch second = loader.next();
  EXPECT_TRUE(same(second, images.batch()));
  EXPECT_TRUE(same(second, images.batch()));
}

TEST(DeviceImages, EitherGoesOnFromTheOthersState) {
  const auto dataset = some_dataset(50, 3);
  const auto pixels = std::make_shared<DevicePixels>(dataset, kCpu);
  const AugmentSpec spec = make_spec(Kind::kPadCrop, 6, 5, 2, true);
  TrainLoader whole(dataset, numbers(50), 5, spec, {8, 2, 4});
  for (int i = 0; i < 11; ++i) whole.next();
  const Json state = Json::parse(whole.state().dump());
  std::vector<Batch> expected;
  for (int i = 0; i < 20; ++i) expected.push_back(whole.next());

  DeviceImages resumed(pixels, numbers(50), 5, spec, {8, 1, 2});
  next(resumed);
  for (int time = 0; time < 2; ++time) {  // also back in time
    resumed.restore(state);
    EXPECT_EQ(resumed.position(), 88);
    for (const Batch& batch : expected) ASSERT_TRUE(same(batch, next(resumed)));
  }

  DeviceImages before(pixels, numbers(50), 5, spec, {8, 1, 2});
  for (int i = 0; i < 11; ++i) before.prepare();
  TrainLoader loader(dataset, numbers(50), 5, spec, {8, 2, 4});
  loader.restore(Json::parse(before.state().dump()));
  for (const Batch& batch : expected) ASSERT_TRUE(same(batch, loader.next()));
  EXPECT_THAT(user_error([&] {
                before.restore({{"seed", 5}, {"items", 49}, {"position", 0}});
              }),
              StartsWith("sampler state of seed 5, 49 items"));
}

TEST(DeviceImages, AnImageThatDoesNotFitIsNamed) {
  const auto pixels = std::make_shared<DevicePixels>(some_dataset(3, 3), kCpu);
  DeviceImages images(pixels, {1}, 1, make_spec(Kind::kNone, 9, 5, 0, false), {1, 1, 1});
  EXPECT_THAT(user_error([&] { images.prepare(); }), StartsWith("some, image 1: image of 5x6; expected"));
  EXPECT_EQ(images.position(), 0);
}

TEST(DeviceImages, FilesOfBytes) {
  ScratchFolder folder;
  write_file(folder / "idx/train-images-idx3-ubyte", idx_images(4, 6, 5, 9));
  write_file(folder / "idx/train-labels-idx1-ubyte", idx_labels({3, 1, 4, 1}));
  for (int i = 1; i <= 5; ++i) {
    write_file(folder / ("cifar10/data_batch_" + std::to_string(i) + ".bin"),
               cifar_record("\x02", 10, 20, static_cast<std::uint8_t>(i)));
  }
  for (const std::string format : {"idx", "cifar10"}) {
    const std::shared_ptr<const ImageDataset> dataset =
        open_image_dataset(format, folder / format, Split::kTrain);
    const AugmentSpec spec = make_spec(Kind::kPadCrop, dataset->height(), dataset->width(), 4, true);
    TrainLoader loader(dataset, numbers(4), 2, spec, {3, 1, 2});
    DeviceImages images(std::make_shared<DevicePixels>(dataset, kCpu), numbers(4), 2, spec, {3, 1, 2});
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(same(loader.next(), next(images))) << format;
  }
}

TEST(DeviceImages, OnlyWhereTheyFit) {
  const auto dataset = some_dataset(20, 3);
  const AugmentSpec crop = make_spec(Kind::kPadCrop, 6, 5, 2, true);
  EXPECT_FALSE(DeviceImages::fits(*dataset, crop, kCpu));
  EXPECT_FALSE(
      DeviceImages::fits(*dataset, make_spec(Kind::kRandomResizedCrop, 6, 5, 0, true), torch::kCUDA));
#if defined(LOWTIDE_WITH_CUDA)
  EXPECT_TRUE(DeviceImages::fits(*dataset, crop, torch::kCUDA));
#else
  EXPECT_FALSE(DeviceImages::fits(*dataset, crop, torch::kCUDA));
#endif

  ScratchFolder folder;
  write_file(folder / "train/ant/1.jpg", encode_jpeg(gradient_image(6, 5, 3)));
  EXPECT_FALSE(
      DeviceImages::fits(*open_image_dataset("folder", folder.path(), Split::kTrain), crop, torch::kCUDA));
}

// What was looked through for damage, and has none, is as much in memory as before.
TEST(DeviceImages, WholeImagesAreInMemory) {
  const auto dataset = some_dataset(20, 3);
  std::vector<std::string> damaged;
  EXPECT_EQ(without_damaged(dataset, damaged)->pixels().data(), dataset->pixels().data());
  EXPECT_EQ(dataset->pixels().size(), 20u * 6 * 5 * 3);
}

TEST(DeviceEvalImages, TheEvalLoadersPass) { expect_the_eval_loaders_pass(kCpu); }

TEST(DeviceEvalImages, MayBeEmpty) {
  const auto pixels = std::make_shared<DevicePixels>(some_dataset(3, 1), kCpu);
  DeviceEvalImages images(pixels, {}, make_spec(Kind::kNone, 6, 5, 0, false), {2, 1, 2});
  EXPECT_FALSE(images.next().has_value());
}

TEST(LoadedBatches, TheLoadersStream) {
  const auto dataset = some_dataset(20, 3);
  const AugmentSpec spec = make_spec(Kind::kPadCrop, 6, 5, 2, true);
  TrainLoader loader(dataset, numbers(20), 1, spec, {8, 1, 2});
  LoadedBatches batches(std::make_unique<TrainLoader>(dataset, numbers(20), 1, spec, LoaderOptions{8, 1, 2}),
                        kCpu);
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(same(loader.next(), next(batches)));
    EXPECT_EQ(batches.position(), loader.position());
    EXPECT_EQ(batches.state(), loader.state());
  }
}

class CudaImages : public testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA device, or a build without CUDA";
  }
};

TEST_F(CudaImages, TheLoadersStream) { expect_the_loaders_stream(torch::kCUDA); }

TEST_F(CudaImages, TheEvalLoadersPass) { expect_the_eval_loaders_pass(torch::kCUDA); }

// Sizes of CIFAR, where an image takes several blocks; and many steps ahead of the GPU, whose copies are under way when
// the next are made.
TEST_F(CudaImages, AsFastAsTheHostGoes) {
  LabelledImages bytes{32, 32, 3, {}, {}};
  for (int i = 0; i < 300; ++i) {
    bytes.labels.push_back(static_cast<std::uint8_t>(i % 10));
    for (int p = 0; p < 32 * 32 * 3; ++p)
      bytes.pixels.push_back(static_cast<std::uint8_t>(i * 31 + p * 7 + p / 96));
  }
  const auto dataset = std::make_shared<MemoryDataset>("CIFAR's size", std::move(bytes), 10);
  const AugmentSpec spec = make_spec(Kind::kPadCrop, 32, 32, 4, true);
  TrainLoader loader(dataset, numbers(300), 3, spec, {128, 1, 2});
  DeviceImages images(std::make_shared<DevicePixels>(dataset, torch::kCUDA), numbers(300), 3, spec,
                      {128, 1, 2});
  std::vector<Batch> made;
  for (int i = 0; i < 100; ++i) {
    const Batch batch = next(images);
    made.push_back({batch.images.clone(), batch.labels.clone()});
  }
  for (const Batch& batch : made) ASSERT_TRUE(same(loader.next(), batch));
}

TEST_F(CudaImages, BatchesStayWhereTheyAre) {
  const auto dataset = some_dataset(20, 3);
  const AugmentSpec spec = make_spec(Kind::kPadCrop, 6, 5, 2, true);
  DeviceImages images(std::make_shared<DevicePixels>(dataset, torch::kCUDA), numbers(20), 1, spec, {8, 1, 2});
  expect_one_address(images);
  const auto loader = [&] {
    return std::make_unique<TrainLoader>(dataset, numbers(20), 1, spec, LoaderOptions{8, 1, 2});
  };
  LoadedBatches batches(loader(), torch::kCUDA);
  expect_one_address(batches);
  LoadedBatches again(loader(), torch::kCUDA);
  const auto expected = loader();
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(same(expected->next(), next(again)));
}

}  // namespace
}  // namespace lowtide
