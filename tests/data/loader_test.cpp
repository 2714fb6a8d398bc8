#include "lowtide/data/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "lowtide/data/memory_dataset.h"
#include "tests/data/image_files.h"

namespace lowtide {
namespace {

using ::testing::StartsWith;
using Kind = AugmentSpec::Kind;

// Image i is i, i + 1, … in its pixels, and of class i modulo 7.
std::shared_ptr<const ImageDataset> counting_dataset(int items, int channels = 3) {
  LabelledImages images{6, 5, channels, {}, {}};
  for (int i = 0; i < items; ++i) {
    images.labels.push_back(static_cast<std::uint8_t>(i % 7));
    for (int p = 0; p < 6 * 5 * channels; ++p) images.pixels.push_back(static_cast<std::uint8_t>(i + p));
  }
  return std::make_shared<MemoryDataset>("counting", std::move(images), 7);
}

std::vector<std::int64_t> numbers(std::int64_t count) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

AugmentSpec pad_crop() {
  AugmentSpec spec;
  spec.kind = Kind::kPadCrop;
  spec.padding = 2;
  spec.flip = true;
  spec.out_height = 6;
  spec.out_width = 5;
  return spec;
}

AugmentSpec as_it_is() {
  AugmentSpec spec;
  spec.out_height = 6;
  spec.out_width = 5;
  return spec;
}

bool same(const Batch& a, const Batch& b) { return a.images.equal(b.images) && a.labels.equal(b.labels); }

TEST(TrainLoader, MoreThanTheMemoryIsRefused) {
  AugmentSpec large = as_it_is();
  large.out_height = large.out_width = 65535;
  EXPECT_THAT(user_error([&] { TrainLoader(counting_dataset(20), numbers(20), 1, large, {1 << 24, 1, 2}); }),
              StartsWith("batch is 16777216: the images of 2 batches take "));
}

TEST(TrainLoader, BatchesAreChannelsLast) {
  TrainLoader loader(counting_dataset(20), numbers(20), 1, as_it_is(), {4, 1, 2});
  const Batch batch = loader.next();
  EXPECT_EQ(batch.images.sizes(), (torch::IntArrayRef{4, 3, 6, 5}));
  EXPECT_TRUE(batch.images.is_contiguous(torch::MemoryFormat::ChannelsLast));
  EXPECT_EQ(batch.images.scalar_type(), torch::kFloat32);
  EXPECT_EQ(batch.labels.scalar_type(), torch::kInt64);
  // The first pixel is the item: red, green, blue are its next three values.
  for (int i = 0; i < 4; ++i) {
    const auto first = batch.images[i].select(1, 0).select(1, 0).mul(255).round();
    const int item = first[0].item<int>();
    EXPECT_EQ(first[2].item<int>(), item + 2);
    EXPECT_EQ(batch.labels[i].item<int>(), item % 7);
  }
}

TEST(TrainLoader, EveryEpochHoldsEveryIndexOnce) {
  TrainLoader loader(counting_dataset(40, 1), {3, 5, 8, 13, 21, 34}, 1, as_it_is(), {3, 2, 4});
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<int> seen;
    for (int half = 0; half < 2; ++half) {
      const auto first = loader.next().images.select(2, 0).select(2, 0).mul(255).round().flatten();
      for (int i = 0; i < 3; ++i) seen.push_back(first[i].item<int>());
    }
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(seen, (std::vector<int>{3, 5, 8, 13, 21, 34}));
  }
}

TEST(TrainLoader, ThreadsDoNotChangeTheStream) {
  const auto dataset = counting_dataset(50);
  TrainLoader one(dataset, numbers(50), 5, pad_crop(), {8, 1, 1});
  TrainLoader two(dataset, numbers(50), 5, pad_crop(), {8, 2, 3});
  TrainLoader four(dataset, numbers(50), 5, pad_crop(), {8, 4, 9});
  TrainLoader other(dataset, numbers(50), 6, pad_crop(), {8, 1, 1});
  bool all_same_as_other = true;
  for (int i = 0; i < 100; ++i) {
    const Batch batch = one.next();
    ASSERT_TRUE(same(batch, two.next())) << i;
    ASSERT_TRUE(same(batch, four.next())) << i;
    all_same_as_other = all_same_as_other && same(batch, other.next());
  }
  EXPECT_FALSE(all_same_as_other);
}

TEST(TrainLoader, ResumedEqualsUninterrupted) {
  const auto dataset = counting_dataset(50);
  TrainLoader whole(dataset, numbers(50), 5, pad_crop(), {8, 2, 4});
  for (int i = 0; i < 11; ++i) whole.next();
  const Json state = Json::parse(whole.state().dump());
  EXPECT_EQ(state.at("position"), 88);  // what was handed out, although more has been made
  TrainLoader resumed(dataset, numbers(50), 5, pad_crop(), {8, 3, 6});
  resumed.restore(state);
  std::vector<Batch> expected;
  for (int i = 0; i < 20; ++i) expected.push_back(whole.next());
  for (const Batch& batch : expected) ASSERT_TRUE(same(resumed.next(), batch));
  whole.restore(state);  // also back in time, while workers run ahead
  for (const Batch& batch : expected) ASSERT_TRUE(same(whole.next(), batch));
}

TEST(TrainLoader, RefusesTheStateOfAnother) {
  TrainLoader loader(counting_dataset(50), numbers(50), 5, pad_crop(), {8, 1, 1});
  TrainLoader untouched(counting_dataset(50), numbers(50), 5, pad_crop(), {8, 1, 1});
  loader.next();
  untouched.next();
  EXPECT_THAT(user_error([&] {
                loader.restore({{"seed", 5}, {"items", 49}, {"position", 0}});
              }),
              StartsWith("sampler state of seed 5, 49 items"));
  EXPECT_TRUE(same(loader.next(), untouched.next()));  // goes on where it was
}

TEST(TrainLoader, ADamagedImageReachesTheCaller) {
  ScratchFolder folder;
  for (int i = 0; i < 30; ++i) {
    const std::string bytes = encode_jpeg(gradient_image(8, 8, 3));
    const auto path = folder / ("train/ant/" + std::to_string(100 + i) + ".jpg");
    write_file(path, i == 17 ? bytes.substr(0, bytes.size() / 2) : bytes);
  }
  AugmentSpec spec;
  spec.kind = Kind::kRandomResizedCrop;
  spec.out_height = spec.out_width = 8;
  std::vector<int> good_batches;
  for (const int threads : {1, 4}) {
    TrainLoader loader(open_image_dataset("folder", folder.path(), Split::kTrain), numbers(30), 2, spec,
                       {3, threads, 8});
    int good = 0;
    const auto run = [&] {
      for (int i = 0; i < 10; ++i, ++good) loader.next();
    };
    EXPECT_THAT(user_error(run), StartsWith((folder / "train/ant/117.jpg").string() + ": damaged JPEG"));
    EXPECT_EQ(loader.position(), 3 * good);
    EXPECT_THAT(user_error([&] { loader.next(); }), StartsWith((folder / "train/ant/117.jpg").string()));
    good_batches.push_back(good);
  }
  EXPECT_EQ(good_batches[0], good_batches[1]);  // at its own batch, however far ahead it was met
}

TEST(TrainLoader, AnImageThatDoesNotFitIsNamed) {
  AugmentSpec spec = as_it_is();
  spec.out_height = 9;
  TrainLoader loader(counting_dataset(3), {1}, 1, spec, {1, 1, 1});
  EXPECT_THAT(user_error([&] { loader.next(); }), StartsWith("counting, image 1: image of 5x6"));
}

TEST(TrainLoader, StopsAtAnyMoment) {
  const auto dataset = counting_dataset(500);
  for (int batches = 0; batches < 50; ++batches) {
    TrainLoader loader(dataset, numbers(500), 5, pad_crop(), {16, 1 + batches % 4, 1 + batches % 3});
    for (int i = 0; i < batches % 5; ++i) loader.next();
    EXPECT_EQ(loader.position(), 16 * (batches % 5));  // what was handed out, however much was made ahead
  }
}

TEST(EvalLoader, OnePassInOrderWithARest) {
  for (const int threads : {1, 3}) {
    EvalLoader loader(counting_dataset(23, 1), numbers(23), as_it_is(), {5, threads, 0});
    for (int pass = 0; pass < 2; ++pass) {
      std::vector<int> seen;
      std::vector<std::int64_t> sizes;
      while (const auto batch = loader.next()) {
        sizes.push_back(batch->labels.size(0));
        const auto first = batch->images.select(2, 0).select(2, 0).mul(255).round().flatten();
        for (std::int64_t i = 0; i < first.size(0); ++i) seen.push_back(first[i].item<int>());
      }
      EXPECT_EQ(sizes, (std::vector<std::int64_t>{5, 5, 5, 5, 3}));
      EXPECT_EQ(seen.size(), 23u);
      EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
      EXPECT_FALSE(loader.next().has_value());
      loader.rewind();
    }
  }
}

TEST(EvalLoader, RewindsInTheMiddleAndMayBeEmpty) {
  EvalLoader loader(counting_dataset(23), {4, 2, 9}, as_it_is(), {2, 2, 2});
  const Batch first = *loader.next();
  loader.rewind();
  EXPECT_TRUE(same(*loader.next(), first));
  EvalLoader empty(counting_dataset(23), {}, as_it_is(), {2, 2, 2});
  EXPECT_FALSE(empty.next().has_value());
}

}  // namespace
}  // namespace lowtide
