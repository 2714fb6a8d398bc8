#include "lowtide/data/decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "lowtide/data/exif.h"
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

TEST(DecodeWebp, LosslessAndLossy) {
  const Image rgb = gradient_image(11, 13, 3);
  EXPECT_EQ(decode(encode_webp(rgb)).pixels, rgb.pixels);
  const Image lossy = decode(encode_webp(gradient_image(24, 40, 3), {.quality = 100}));
  EXPECT_EQ(lossy.height, 24);
  EXPECT_EQ(lossy.width, 40);
  // Colours at half the resolution, and 16 to 235 for black to white.
  EXPECT_LE(largest_difference(lossy.pixels, gradient_image(24, 40, 3).pixels), 12);
}

TEST(DecodeWebp, AlphaIsDropped) {
  const Image image = decode(encode_webp({1, 2, 4, {10, 20, 30, 1, 40, 50, 60, 255}}));
  EXPECT_EQ(image.pixels, (std::vector<std::uint8_t>{10, 20, 30, 40, 50, 60}));
}

TEST(DecodeWebp, DamageIsAnError) {
  for (const WebpOptions& options : {WebpOptions{}, WebpOptions{.quality = 90}}) {
    const std::string bytes = encode_webp(gradient_image(64, 64, 3), options);
    for (const std::size_t size : {bytes.size() / 2, bytes.size() - 1, std::size_t{20}, std::size_t{12}})
      EXPECT_THAT(decode_error(bytes.substr(0, size)), StartsWith("picture: damaged WebP: ")) << size;
    EXPECT_THAT(decode_error(bytes.substr(0, bytes.size() - 1)), HasSubstr("the file ends early"));
  }
}

TEST(DecodeWebp, RefusesABombAndAnAnimation) {
  std::string bomb = encode_webp(gradient_image(8, 8, 3));
  // After the chunk's name, its size and a signature: 14 bits of width - 1, 14 of height - 1.
  bomb.replace(bomb.find("VP8L") + 9, 4, "\xFF\xFF\xFF\x0F");
  EXPECT_THAT(decode_error(bomb), HasSubstr("expected at most 20000 a side and 268435456 bytes"));
  // RIFF, size, WEBP; VP8X, size, flags (animation), canvas of 8 x 8 less 1; ANIM, size, background, loops.
  const std::string animation(
      "RIFF\x24\0\0\0WEBPVP8X\x0A\0\0\0\x02\0\0\0\x07\0\0\x07\0\0ANIM\x06\0\0\0\0\0\0\0\0\0", 44);
  EXPECT_THAT(decode_error(animation), StartsWith("picture: an animated WebP; expected one picture"));
}

TEST(Decode, JpegIsTurnedAsItsCameraWasHeld) {
  const std::string plain = encode_jpeg(gradient_image(24, 40, 3));
  const Image stored = decode(plain);
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const std::string bytes = with_orientation(plain, orientation);
    const Image image = decode(bytes);
    EXPECT_EQ(image.height, orientation < 5 ? 24 : 40);
    EXPECT_EQ(image.pixels, turned_upright(stored, orientation).pixels) << orientation;
    EXPECT_EQ(decode_stored_image(bytes_of(bytes), "picture").pixels, stored.pixels);
  }
}

TEST(Decode, OtherFilesAreRefused) {
  EXPECT_THAT(decode_error("GIF89a and more"),
              StartsWith("picture: neither a JPEG nor a PNG nor a WebP image (15 bytes)"));
  EXPECT_THAT(decode_error(""), StartsWith("picture: neither"));
}

}  // namespace
}  // namespace lowtide
