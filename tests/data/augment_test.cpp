#include "lowtide/data/augment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/data/image_files.h"

namespace lowtide {
namespace {

using ::testing::HasSubstr;
using Kind = AugmentSpec::Kind;

RandomStream stream(std::uint64_t position) { return {1, RandomPurpose::kAugmentation, position}; }

std::vector<float> apply(const AugmentSpec& spec, const Image& image, std::uint64_t position = 0) {
  const Augmenter augmenter(spec, image.channels);
  std::vector<float> out(static_cast<std::size_t>(augmenter.output_size()));
  RandomStream random = stream(position);
  augmenter.apply(image, random, out.data());
  return out;
}

AugmentSpec make_spec(Kind kind, int height, int width) {
  AugmentSpec spec;
  spec.kind = kind;
  spec.out_height = height;
  spec.out_width = width;
  return spec;
}

TEST(Augment, NormalisesByHand) {
  AugmentSpec spec = make_spec(Kind::kNone, 1, 2);
  spec.mean = {0.5f, 0.25f, 0.0f};
  spec.std = {0.5f, 0.25f, 2.0f};
  const auto out = apply(spec, {1, 2, 3, {0, 255, 51, 255, 0, 102}});
  const std::vector<float> expected = {-1, 3, 0.1f, 1, -1, 0.2f};
  for (std::size_t i = 0; i < 6; ++i) EXPECT_NEAR(out[i], expected[i], 1e-6) << i;
  spec.mean = spec.std = {};
  EXPECT_NEAR(apply(spec, {1, 2, 1, {51, 255}})[0], 0.2f, 1e-7);
}

// Pixel values say where they come from: the crop's corner and flip can be read off the output.
TEST(Augment, PadCropIsACropOfThePaddedImage) {
  AugmentSpec spec = make_spec(Kind::kPadCrop, 6, 5);
  spec.padding = 2;
  spec.flip = true;
  spec.mean = {0.5f};
  spec.std = {0.25f};
  Image image{6, 5, 1, {}};
  for (int i = 1; i <= 30; ++i) image.pixels.push_back(static_cast<std::uint8_t>(i));
  for (std::uint64_t position = 0; position < 200; ++position) {
    RandomStream random = stream(position);
    const int top = static_cast<int>(random.below(5)) - 2;
    const int left = static_cast<int>(random.below(5)) - 2;
    const bool flip = random.below(2) == 1;
    const auto out = apply(spec, image, position);
    for (int y = 0; y < 6; ++y) {
      for (int x = 0; x < 5; ++x) {
        const int from_y = y + top, from_x = (flip ? 4 - x : x) + left;
        const bool inside = from_y >= 0 && from_y < 6 && from_x >= 0 && from_x < 5;
        const float value =
            inside ? static_cast<float>(5 * from_y + from_x + 1) : 0.0f;  // the border is black
        ASSERT_NEAR(out[static_cast<std::size_t>(5 * y + x)], (value / 255.0f - 0.5f) / 0.25f, 1e-6);
      }
    }
  }
}

// Drawn in one place and cut in another: what is drawn is all that the other needs to know.
TEST(Augment, ACropIsDrawnAndThenTaken) {
  AugmentSpec spec = make_spec(Kind::kPadCrop, 6, 5);
  spec.padding = 2;
  spec.flip = true;
  const Image image = gradient_image(6, 5, 3);
  const Augmenter augmenter(spec, 3);
  for (std::uint64_t position = 0; position < 200; ++position) {
    RandomStream random = augmentation_stream(1, static_cast<std::int64_t>(position));
    const Crop crop = augmenter.draw_crop(6, 5, random);
    std::vector<float> out(static_cast<std::size_t>(augmenter.output_size()));
    augmenter.apply(image, crop, out.data());
    ASSERT_EQ(out, apply(spec, image, position));
  }
  EXPECT_EQ(augmenter.scale(1), static_cast<float>(1 / 255.0));
  EXPECT_EQ(augmenter.shift(1), 0.0f);
}

TEST(Augment, OffsetsAreUniformAndHalfIsFlipped) {
  AugmentSpec spec = make_spec(Kind::kPadCrop, 32, 32);
  spec.padding = 4;
  spec.flip = true;
  Image image{32, 32, 3, std::vector<std::uint8_t>(32 * 32 * 3)};
  // A mark that stays inside every crop, off the centre so that a flip moves it.
  image.pixels[(16 * 32 + 10) * 3] = 255;
  constexpr int kDraws = 16200;  // 200 for each of 81 offsets
  std::map<std::pair<int, int>, int> offsets;
  int flips = 0;
  const Augmenter augmenter(spec, 3);
  std::vector<float> out(static_cast<std::size_t>(augmenter.output_size()));
  for (std::uint64_t position = 0; position < kDraws; ++position) {
    RandomStream random = stream(position);
    augmenter.apply(image, random, out.data());
    const auto mark = static_cast<int>(std::max_element(out.begin(), out.end()) - out.begin()) / 3;
    const int x = mark % 32;
    const bool flipped = x > 15;  // unflipped columns are 6..14, flipped 17..25
    flips += flipped;
    ++offsets[{mark / 32, flipped ? 31 - x : x}];
  }
  EXPECT_EQ(offsets.size(), 81u);
  double chi_square = 0;
  for (const auto& [offset, count] : offsets) chi_square += (count - 200.0) * (count - 200.0) / 200.0;
  EXPECT_LT(chi_square, 124.8);            // 80 degrees of freedom: once in a thousand
  EXPECT_NEAR(flips, kDraws / 2, 4 * 64);  // four standard deviations of sqrt(16200) / 2 = 64
}

TEST(Augment, RandomResizedCropCoversScalesRatiosAndStaysInside) {
  AugmentSpec spec = make_spec(Kind::kRandomResizedCrop, 8, 8);
  // Red is the column and green the row: the corners of the output tell the box.
  Image image{200, 250, 3, {}};
  for (int y = 0; y < 200; ++y) {
    for (int x = 0; x < 250; ++x) {
      image.pixels.insert(image.pixels.end(),
                          {static_cast<std::uint8_t>(x), static_cast<std::uint8_t>(y), 0});
    }
  }
  double smallest = 1, largest = 0, mean = 0;
  for (std::uint64_t position = 0; position < 1000; ++position) {
    const auto out = apply(spec, image, position);
    // The first and last output pixel are 7 steps of an eighth of the box apart, less 2/21 of a step at each
    // end: their triangles, of radius 1, lose the half step outside the box, which moves their centroid by
    // (1/12) / (7/8).
    const double apart = (7 - 4.0 / 21) / 8;
    const double width = (out[7 * 3] - out[0]) * 255 / apart;
    const double height = (out[7 * 8 * 3 + 1] - out[1]) * 255 / apart;
    const double scale = width * height / (200 * 250);
    EXPECT_GT(width / height, 0.70);
    EXPECT_LT(width / height, 1.43);
    smallest = std::min(smallest, scale);
    largest = std::max(largest, scale);
    mean += scale / 1000;
  }
  EXPECT_GT(smallest, 0.06);
  EXPECT_LT(smallest, 0.10);
  EXPECT_GT(largest, 0.80);
  // 0.454 by a simulation apart from this code: under (0.08 + 1) / 2, since large boxes fit less often.
  EXPECT_NEAR(mean, 0.454, 0.03);
}

TEST(Augment, ConstantImageStaysConstant) {
  AugmentSpec spec = make_spec(Kind::kRandomResizedCrop, 24, 24);
  spec.mean = {0.1f, 0.2f, 0.3f};
  spec.std = {0.5f, 0.5f, 0.5f};
  const Image image{50, 3, 3, std::vector<std::uint8_t>(450, 255)};  // so narrow that every try fails
  for (std::uint64_t position = 0; position < 20; ++position) {
    const auto out = apply(spec, image, position);
    for (std::size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], (1.0f - spec.mean[i % 3]) * 2, 1e-4);
  }
}

TEST(Augment, CentreCropIsTheCentre) {
  AugmentSpec spec = make_spec(Kind::kResizeCentreCrop, 4, 4);
  spec.resize = 6;  // the shorter side's own size: nothing is resized
  Image image{6, 9, 1, {}};
  for (int i = 0; i < 54; ++i) image.pixels.push_back(static_cast<std::uint8_t>(i));
  const auto out = apply(spec, image);
  for (int y = 0; y < 4; ++y) {
    for (int x = 0; x < 4; ++x) {
      // (6 − 4) / 2 = 1 from the top, (9 − 4) / 2 = 2 from the left
      EXPECT_NEAR(out[static_cast<std::size_t>(4 * y + x)] * 255, 9 * (y + 1) + x + 2, 1e-3);
    }
  }
}

TEST(Augment, SpecsThatCannotBeAreRefused) {
  const auto error = [](AugmentSpec spec, int channels) {
    return user_error([&] { Augmenter(spec, channels); });
  };
  EXPECT_THAT(error(make_spec(Kind::kNone, 0, 4), 1), HasSubstr("output of 4x0"));
  AugmentSpec spec = make_spec(Kind::kResizeCentreCrop, 224, 224);
  spec.resize = 100;
  EXPECT_THAT(error(spec, 3), HasSubstr("resized to 100, less than the crop of 224x224"));
  spec = make_spec(Kind::kNone, 4, 4);
  spec.mean = {0.5f, 0.5f};
  EXPECT_THAT(error(spec, 3), HasSubstr("2 values of mean or std; expected one for each of 3 channels"));
  spec.mean = {};
  spec.std = {0.0f};
  EXPECT_THAT(error(spec, 1), HasSubstr("std 0; expected more than 0"));
  const Image image = gradient_image(5, 5, 1);
  EXPECT_THAT(user_error([&] { apply(make_spec(Kind::kNone, 4, 4), image); }),
              HasSubstr("expected exactly 4x4"));
  EXPECT_THAT(user_error([&] { apply(make_spec(Kind::kPadCrop, 8, 8), image); }),
              HasSubstr("expected at least 8x8"));
}

}  // namespace
}  // namespace lowtide
