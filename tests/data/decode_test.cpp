#include "lowtide/data/decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "tests/data/image_files.h"

namespace lowtide {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Image decode(const std::string& bytes) { return decode_image(bytes_of(bytes), "picture"); }

std::string decode_error(const std::string& bytes) {
  return user_error([&] { decode(bytes); });
}

int largest_difference(const std::vector<std::uint8_t>& a, const std::vector<std::uint8_t>& b) {
  if (a.size() != b.size()) return 256;
  int largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

std::vector<std::uint8_t> grey_as_rgb(const std::vector<std::uint8_t>& grey) {
  std::vector<std::uint8_t> rgb;
  for (const std::uint8_t value : grey) rgb.insert(rgb.end(), 3, value);
  return rgb;
}

TEST(DecodeJpeg, ColourAndGrey) {
  const Image colour = decode(encode_jpeg(gradient_image(24, 40, 3)));
  EXPECT_EQ(colour.height, 24);
  EXPECT_EQ(colour.width, 40);
  EXPECT_EQ(colour.channels, 3);
  // Quality 100 still halves the resolution of the colours, which this image hardly changes from pixel to
  // pixel.
  EXPECT_LE(largest_difference(colour.pixels, gradient_image(24, 40, 3).pixels), 12);
  const Image grey = decode(encode_jpeg(gradient_image(24, 40, 1)));
  EXPECT_EQ(grey.channels, 3);
  EXPECT_LE(largest_difference(grey.pixels, grey_as_rgb(gradient_image(24, 40, 1).pixels)), 2);
}

TEST(DecodeJpeg, InksBecomeRgb) {
  // libjpeg writes Adobe's marker for CMYK, and such files store light: (255, 255, 255, 255) is white.
  Image inks{8, 8, 4, {}};
  for (int i = 0; i < 64; ++i) inks.pixels.insert(inks.pixels.end(), {200, 100, 255, 128});
  const Image image = decode(encode_jpeg(inks));
  ASSERT_EQ(image.pixels.size(), 192u);
  // 200 · 128 / 255, 100 · 128 / 255, 255 · 128 / 255
  EXPECT_NEAR(image.pixels[0], 100, 1);
  EXPECT_NEAR(image.pixels[1], 50, 1);
  EXPECT_NEAR(image.pixels[2], 128, 1);
}

TEST(DecodeJpeg, CutShortIsAnError) {
  const std::string bytes = encode_jpeg(gradient_image(64, 64, 3));
  for (const std::size_t size : {bytes.size() / 2, bytes.size() - 40, std::size_t{100}, std::size_t{3}}) {
    EXPECT_THAT(decode_error(bytes.substr(0, size)), StartsWith("picture: damaged JPEG: ")) << size;
  }
  EXPECT_THAT(decode_error(bytes.substr(0, bytes.size() / 2)), HasSubstr("remature end"));
}

TEST(DecodeJpeg, RefusesABomb) {
  std::string bytes = encode_jpeg(gradient_image(8, 8, 3));
  const std::size_t frame =
      bytes.find("\xFF\xC0");  // marker, length (2), precision (1), height (2), width (2)
  bytes.replace(frame + 5, 4, "\xFF\x00\xFF\x00", 4);
  EXPECT_THAT(decode_error(bytes), HasSubstr("image of 65280x65280 pixels; expected at most 20000 a side"));
  // Each side may pass, and the whole be too large.
  bytes.replace(frame + 5, 4, "\x40\x00\x40\x00", 4);
  EXPECT_THAT(decode_error(bytes), HasSubstr("image of 16384x16384"));
}

TEST(DecodePng, EveryKindBecomesRgb) {
  for (const bool interlaced : {false, true}) {
    for (const int bit_depth : {8, 16}) {
      const PngOptions options{bit_depth, interlaced};
      const Image rgb = gradient_image(11, 13, 3);
      EXPECT_EQ(decode(encode_png(rgb, options)).pixels, rgb.pixels);
      const Image grey = gradient_image(11, 13, 1);
      EXPECT_EQ(decode(encode_png(grey, options)).pixels, grey_as_rgb(grey.pixels));
    }
  }
}

TEST(DecodePng, AlphaIsDropped) {
  const Image image = decode(encode_png({1, 2, 4, {10, 20, 30, 0, 40, 50, 60, 255}}));
  EXPECT_EQ(image.pixels, (std::vector<std::uint8_t>{10, 20, 30, 40, 50, 60}));
  const Image grey = decode(encode_png({1, 2, 2, {10, 0, 20, 255}}));
  EXPECT_EQ(grey.pixels, (std::vector<std::uint8_t>{10, 10, 10, 20, 20, 20}));
}

TEST(DecodePng, Palette) {
  const Image image = decode(encode_palette_png(2, 2, {0, 1, 2, 0}, {1, 2, 3, 40, 50, 60, 255, 0, 255}));
  EXPECT_EQ(image.pixels, (std::vector<std::uint8_t>{1, 2, 3, 40, 50, 60, 255, 0, 255, 1, 2, 3}));
}

TEST(DecodePng, DamageIsAnError) {
  const std::string bytes = encode_png(gradient_image(64, 64, 3));
  for (const std::size_t size : {bytes.size() / 2, bytes.size() - 1, std::size_t{20}, std::size_t{8}}) {
    EXPECT_THAT(decode_error(bytes.substr(0, size)), StartsWith("picture: damaged PNG: the file ends early"));
  }
  std::string flipped = bytes;
  flipped[bytes.size() / 2] ^= 1;
  EXPECT_THAT(decode_error(flipped), StartsWith("picture: damaged PNG: "));
}

TEST(Decode, OtherFilesAreRefused) {
  EXPECT_THAT(decode_error("GIF89a and more"),
              StartsWith("picture: neither a JPEG nor a PNG image (15 bytes)"));
  EXPECT_THAT(decode_error(""), StartsWith("picture: neither"));
}

}  // namespace
}  // namespace lowtide
