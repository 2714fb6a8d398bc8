#include "lowtide/data/detection/draw.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>

#include "lowtide/data/decode.h"
#include "lowtide/data/encode_png.h"

namespace lowtide {
namespace {

constexpr Colour kRed{255, 0, 0};

Image black(int height, int width) {
  return {height, width, 3, std::vector<std::uint8_t>(static_cast<std::size_t>(height * width * 3))};
}

// A row a line, a character a pixel: '#' where it is not black.
std::string picture(const Image& image) {
  std::string text;
  for (int y = 0; y < image.height; ++y) {
    for (int x = 0; x < image.width; ++x) {
      const std::uint8_t* pixel = image.row(y) + 3 * x;
      text += pixel[0] || pixel[1] || pixel[2] ? '#' : '.';
    }
    text += '\n';
  }
  return text;
}

TEST(Draw, ABoxHasItsEdgesInside) {
  Image image = black(6, 8);
  draw_box(image, {1, 1, 6, 5}, kRed, 1);
  EXPECT_EQ(picture(image),
            "........\n"
            ".#####..\n"
            ".#...#..\n"
            ".#...#..\n"
            ".#####..\n"
            "........\n");
}

TEST(Draw, WhatIsOutsideTheImageIsLeftOut) {
  Image image = black(3, 4);
  draw_box(image, {-5, -5, 3, 9}, kRed, 1);
  EXPECT_EQ(picture(image), "..#.\n..#.\n..#.\n");
  draw_box(image, {2, 1, 2, 1}, kRed, 3);  // nothing to draw
  EXPECT_EQ(picture(image), "..#.\n..#.\n..#.\n");
  Image one = black(1, 1);
  draw_label(one, 0, 0, "person 0.98", kRed, 2);
  EXPECT_EQ(picture(one), "#\n");
}

TEST(Draw, LettersAreLegible) {
  Image image = black(12, 13);
  draw_label(image, 0, 0, "h1", {0, 0, 0}, 1);  // white on black, below the edge
  EXPECT_EQ(picture(image),
            ".............\n"
            ".#.......#...\n"
            ".#......##...\n"
            ".#.##....#...\n"
            ".##..#...#...\n"
            ".#...#...#...\n"
            ".#...#...#...\n"
            ".#...#..###..\n"
            ".............\n"
            ".............\n"
            ".............\n"
            ".............\n");
}

TEST(Draw, ClassesHaveColoursOfTheirOwn) {
  std::set<Colour> colours;
  for (int label = 0; label < 20; ++label) colours.insert(colour_of(label));
  EXPECT_EQ(colours.size(), 20u);
}

TEST(EncodePng, ComesBackAsItWas) {
  for (const auto& [height, width] : {std::pair{1, 1}, std::pair{37, 53}}) {
    Image image = black(height, width);
    for (std::size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = static_cast<std::uint8_t>(i * 7);
    const Image again = decode_image(encode_rgb_png(image), "test.png");
    EXPECT_EQ(again.height, height);
    EXPECT_EQ(again.width, width);
    EXPECT_EQ(again.pixels, image.pixels);
  }
}

}  // namespace
}  // namespace lowtide
