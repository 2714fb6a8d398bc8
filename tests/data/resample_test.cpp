#include "lowtide/data/resample.h"

#include <gtest/gtest.h>

namespace lowtide {
namespace {

std::vector<float> resize(const Image& image, int height, int width, bool flip = false) {
  std::vector<float> out(static_cast<std::size_t>(height * width * image.channels));
  resample(image, {{0, 0, image.height, image.width}, height, width, {0, 0, height, width}, flip},
           out.data());
  return out;
}

void expect_near(const std::vector<float>& actual, const std::vector<float>& expected,
                 float tolerance = 1e-4f) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) EXPECT_NEAR(actual[i], expected[i], tolerance) << i;
}

TEST(Resample, SameSizeIsTheImage) {
  const Image image{2, 2, 3, {1, 2, 3, 40, 50, 60, 7, 8, 9, 100, 110, 120}};
  expect_near(resize(image, 2, 2), {1, 2, 3, 40, 50, 60, 7, 8, 9, 100, 110, 120});
  expect_near(resize(image, 2, 2, true), {40, 50, 60, 1, 2, 3, 100, 110, 120, 7, 8, 9});
}

TEST(Resample, EnlargedByHand) {
  // Centres of the four outputs lie at 0.25, 0.75, 1.25, 1.75; of the two inputs at 0.5 and 1.5.
  expect_near(resize({1, 2, 1, {0, 100}}, 1, 4), {0, 25, 75, 100});
  expect_near(resize({2, 1, 1, {0, 100}}, 4, 1), {0, 25, 75, 100});
}

TEST(Resample, ShrunkByHand) {
  // Step 2: a triangle of radius 2 around 1 weighs pixels 0, 1, 2 (centres 0.5, 1.5, 2.5) with 0.75, 0.75,
  // 0.25; the part left of the edge is missing: (0.75 · 10 + 0.75 · 20 + 0.25 · 40) / 1.75. The other output
  // mirrors it.
  expect_near(resize({1, 4, 1, {10, 20, 40, 80}}, 1, 2),
              {32.5f / 1.75f, (0.25f * 20 + 0.75f * 40 + 0.75f * 80) / 1.75f});
}

TEST(Resample, ShrinkingSeesEveryPixel) {
  // Without antialiasing a picture of single bright columns, resized to an eighth, would be all or nothing of
  // them.
  Image image{32, 32, 1, std::vector<std::uint8_t>(32 * 32)};
  for (std::size_t i = 0; i < image.pixels.size(); i += 4) image.pixels[i] = 200;
  for (const float value : resize(image, 4, 4)) EXPECT_NEAR(value, 50, 6);
}

TEST(Resample, ConstantStaysConstant) {
  const Image image{37, 53, 3, std::vector<std::uint8_t>(37 * 53 * 3, 173)};
  for (const auto& [height, width] : {std::pair{8, 8}, {64, 64}, {37, 53}, {100, 5}}) {
    for (const float value : resize(image, height, width)) ASSERT_NEAR(value, 173, 1e-3);
  }
}

TEST(Resample, WindowIsAPartOfTheWhole) {
  Image image{20, 30, 3, {}};
  for (int i = 0; i < 20 * 30 * 3; ++i) image.pixels.push_back(static_cast<std::uint8_t>(i * 37));
  const std::vector<float> whole = resize(image, 10, 15);
  std::vector<float> part(4 * 5 * 3);
  resample(image, {{0, 0, 20, 30}, 10, 15, {3, 6, 4, 5}, false}, part.data());
  for (std::size_t y = 0; y < 4; ++y) {
    for (std::size_t x = 0; x < 15; ++x) EXPECT_EQ(part[y * 15 + x], whole[(y + 3) * 45 + 18 + x]);
  }
}

TEST(Resample, SourceBoxIsACrop) {
  Image image{10, 10, 1, std::vector<std::uint8_t>(100, 255)};
  for (const std::size_t i : {34u, 35u, 44u, 45u}) image.pixels[i] = 7;
  std::vector<float> out(36);
  resample(image, {{3, 4, 2, 2}, 6, 6, {0, 0, 6, 6}, false}, out.data());
  for (const float value : out) EXPECT_NEAR(value, 7, 1e-4);  // nothing leaks in from outside the box
}

}  // namespace
}  // namespace lowtide
