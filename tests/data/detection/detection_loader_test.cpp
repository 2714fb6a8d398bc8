#include "lowtide/data/detection/detection_loader.h"

#include <gtest/gtest.h>

#include "tests/data/detection/small_voc.h"
#include "tests/io/scratch.h"
#include "tests/testing.h"

namespace lowtide {
namespace {

class DetectionLoader : public testing::Test {
 protected:
  DetectionLoader() {
    write_small_voc(folder_.path());
    data_ = std::make_shared<VocDataset>(folder_.path(), "train");
  }

  DetectionBatch make(const std::vector<std::int64_t>& items, const DetectionView& view,
                      std::int64_t position = 0) {
    return DetectionBatchMaker(data_, view, /*seed=*/1)({items, position}, {});
  }

  const ScratchFolder folder_;
  std::shared_ptr<const VocDataset> data_;
  const DetectionView view_{.shorter = 40, .longer = 64};
};

TEST_F(DetectionLoader, ImagesArePaddedToTheLargestAndToMultiplesOf32) {
  // 80 × 60 becomes 53 × 40, 60 × 80 becomes 40 × 53: together 64 × 64.
  const DetectionBatch batch = make({0, 1}, view_);
  EXPECT_EQ(batch.images.sizes(), (torch::IntArrayRef{2, 3, 64, 64}));
  EXPECT_TRUE(batch.images.is_contiguous(torch::MemoryFormat::ChannelsLast));
  EXPECT_EQ(batch.fits[0].width, 53);
  EXPECT_EQ(batch.fits[0].height, 40);
  EXPECT_GT(batch.images[0].slice(1, 0, 40).slice(2, 0, 53).min().item<float>(), 0);
  EXPECT_EQ(batch.images[0].slice(1, 40, 64).abs().max().item<float>(), 0);
  EXPECT_EQ(batch.images[0].slice(2, 53, 64).abs().max().item<float>(), 0);
  EXPECT_EQ(make({0}, view_).images.sizes(), (torch::IntArrayRef{1, 3, 64, 64}));
}

TEST_F(DetectionLoader, ObjectsGoWithTheImage) {
  const DetectionBatch batch = make({0, 2}, view_);
  ASSERT_EQ(batch.objects.sizes(), (torch::IntArrayRef{2, 1, 5}));  // a difficult one is left out
  const SmallVocObject object = small_voc_object(0);
  const double scale = 40.0 / 60;
  const torch::Tensor expected =
      torch::tensor({object.box.left * scale, object.box.top * scale, object.box.right * scale,
                     object.box.bottom * scale, static_cast<double>(object.label)});
  EXPECT_TRUE(close_to(batch.objects[0][0], expected.to(torch::kFloat), 1e-6));
  EXPECT_TRUE(same(batch.objects[1][0], torch::full({5}, -1.0f)));  // the third image has none
}

TEST_F(DetectionLoader, AFlippedImageHasFlippedBoxes) {
  DetectionView flipping = view_;
  flipping.flip = true;
  const DetectionBatch plain = make({0}, view_);
  bool both[2] = {false, false};
  for (std::int64_t position = 0; position < 20; ++position) {
    const DetectionBatch batch = make({0}, flipping, position);
    const bool flipped = !batch.images.equal(plain.images);
    both[flipped] = true;
    const torch::Tensor picture = batch.images.slice(3, 0, 53);
    const torch::Tensor original = plain.images.slice(3, 0, 53);
    EXPECT_TRUE(close_to(flipped ? picture.flip({3}) : picture, original, 1e-5));
    const float left = plain.objects[0][0][0].item<float>(), right = plain.objects[0][0][2].item<float>();
    EXPECT_FLOAT_EQ(batch.objects[0][0][0].item<float>(), flipped ? 53 - right : left);
    EXPECT_FLOAT_EQ(batch.objects[0][0][2].item<float>(), flipped ? 53 - left : right);
  }
  EXPECT_TRUE(both[0] && both[1]);
}

TEST_F(DetectionLoader, PixelsAreNormalised) {
  DetectionView view = view_;
  view.mean = {0.5, 0.25, 0};
  view.std = {0.5, 1, 2};
  const torch::Tensor plain = make({0}, view_).images.slice(2, 0, 40).slice(3, 0, 53);
  const torch::Tensor seen = make({0}, view).images.slice(2, 0, 40).slice(3, 0, 53);
  const torch::Tensor mean = torch::tensor({0.5f, 0.25f, 0.0f}).view({1, 3, 1, 1});
  const torch::Tensor deviation = torch::tensor({0.5f, 1.0f, 2.0f}).view({1, 3, 1, 1});
  EXPECT_TRUE(close_to(seen, (plain - mean) / deviation, 1e-6));
}

TEST_F(DetectionLoader, AStreamContinuesWhereItWas) {
  DetectionView view = view_;
  view.flip = true;
  const auto stream = [&](int threads) {
    return std::make_unique<TrainStream<DetectionBatch>>(std::vector<std::int64_t>{0, 1, 2, 3}, 5,
                                                         DetectionBatchMaker(data_, view, 5),
                                                         LoaderOptions{.batch_size = 3, .threads = threads});
  };
  const auto whole = stream(1), resumed = stream(3);
  for (int i = 0; i < 3; ++i) whole->next();
  resumed->restore(whole->state());
  for (int i = 0; i < 4; ++i) {
    const DetectionBatch expected = whole->next(), batch = resumed->next();
    EXPECT_EQ(batch.items, expected.items);
    EXPECT_TRUE(same(batch.images, expected.images));
    EXPECT_TRUE(same(batch.objects, expected.objects));
  }
}

}  // namespace
}  // namespace lowtide
