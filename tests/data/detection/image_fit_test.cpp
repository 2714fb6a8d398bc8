#include "lowtide/data/detection/image_fit.h"

#include <gtest/gtest.h>

#include "lowtide/data/detection/boxes.h"

namespace lowtide {
namespace {

TEST(ImageFit, TheShorterSideDecides) {
  // 608 / 375 = 1.6213, and 500 of that are 810.7: within 1,024.
  const ImageFit landscape = fit_sides(375, 500);
  EXPECT_DOUBLE_EQ(landscape.scale, 608.0 / 375);
  EXPECT_EQ(landscape.height, 608);
  EXPECT_EQ(landscape.width, 811);
  const ImageFit portrait = fit_sides(500, 375);
  EXPECT_EQ(portrait.height, 811);
  EXPECT_EQ(portrait.width, 608);
}

TEST(ImageFit, UnlessTheLongerGrowsTooLong) {
  // 608 / 200 would make 1,520 of 500: 1,024 / 500 = 2.048 instead, and 200 of that are 409.6.
  const ImageFit fit = fit_sides(200, 500);
  EXPECT_DOUBLE_EQ(fit.scale, 2.048);
  EXPECT_EQ(fit.height, 410);
  EXPECT_EQ(fit.width, 1024);
  const ImageFit line = fit_sides(1, 5000);
  EXPECT_EQ(line.width, 1024);
  EXPECT_EQ(line.height, 1);
}

TEST(ImageFit, LargeImagesShrink) {
  const ImageFit fit = fit_sides(1200, 1600, 300, 500);
  EXPECT_DOUBLE_EQ(fit.scale, 0.25);
  EXPECT_EQ(fit.height, 300);
  EXPECT_EQ(fit.width, 400);
}

BoundingBox grown(const BoundingBox& box, float by) {
  return {box.left - by, box.top - by, box.right + by, box.bottom + by};
}

bool holds(const BoundingBox& box, int x, int y) {
  const float centre_x = static_cast<float>(x) + 0.5f, centre_y = static_cast<float>(y) + 0.5f;
  return centre_x > box.left && centre_x < box.right && centre_y > box.top && centre_y < box.bottom;
}

// A white rectangle on black stays where its box says, resized and flipped.
TEST(ImageFit, BoxesGoWithTheImage) {
  const BoundingBox box = {20, 8, 44, 32};
  Image image{40, 60, 3, std::vector<std::uint8_t>(40 * 60 * 3)};
  for (std::size_t y = 8; y < 32; ++y) {
    for (std::size_t x = 20 * 3; x < 44 * 3; ++x) image.pixels[y * 180 + x] = 255;
  }
  for (const bool flip : {false, true}) {
    const ImageFit fit = fit_sides(40, 60, 100, 1000);  // 2.5 times as large
    ASSERT_EQ(fit.width, 150);
    std::vector<float> pixels(100 * 150 * 3);
    resize_image(image, fit, flip, pixels.data());
    BoundingBox moved = scaled(box, fit.scale);
    if (flip) moved = flipped(moved, fit.width);
    EXPECT_EQ(moved, flip ? (BoundingBox{40, 20, 100, 80}) : (BoundingBox{50, 20, 110, 80}));
    // Enlarged, an edge is blurred over 2.5 pixels: two either way are not looked at.
    const BoundingBox inner = grown(moved, -2), outer = grown(moved, 2);
    for (int y = 0; y < 100; ++y) {
      for (int x = 0; x < 150; ++x) {
        if (holds(outer, x, y) && !holds(inner, x, y)) continue;
        const float value = pixels[static_cast<std::size_t>((y * 150 + x) * 3)];
        ASSERT_NEAR(value, holds(inner, x, y) ? 255 : 0, 0.01) << x << ' ' << y;
      }
    }
  }
}

}  // namespace
}  // namespace lowtide
