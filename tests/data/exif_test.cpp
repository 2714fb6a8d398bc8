#include "lowtide/data/exif.h"

#include <gtest/gtest.h>

#include "tests/data/image_files.h"

namespace lowtide {
namespace {

int orientation_of(const std::string& bytes) { return exif_orientation(bytes_of(bytes)); }

std::string picture() { return encode_jpeg(gradient_image(8, 12, 3)); }

TEST(Exif, OrientationInEitherByteOrder) {
  EXPECT_EQ(orientation_of(picture()), 1);
  for (int orientation = 1; orientation <= 8; ++orientation) {
    for (const bool little_endian : {true, false})
      EXPECT_EQ(orientation_of(with_orientation(picture(), orientation, little_endian)), orientation);
  }
}

// Such a picture is whole, and shown as it is.
TEST(Exif, WhatCannotBeReadSaysNothing) {
  const std::string whole = with_orientation(picture(), 6);
  const std::size_t tiff = whole.find("II*");
  EXPECT_EQ(orientation_of(with_orientation(picture(), 0)), 1);
  EXPECT_EQ(orientation_of(with_orientation(picture(), 9)), 1);
  const auto changed = [&](std::size_t at, const std::string& bytes) {
    std::string text = whole;
    return text.replace(at, bytes.size(), bytes);
  };
  EXPECT_EQ(orientation_of(changed(tiff, "XX")), 1) << "no byte order";
  EXPECT_EQ(orientation_of(changed(tiff + 4, "\xFF\xFF\xFF\xFF")), 1) << "a directory beyond the end";
  EXPECT_EQ(orientation_of(changed(tiff + 24, "\x04")), 1) << "a long";
  EXPECT_EQ(orientation_of(changed(tiff - 6, "Exit")), 1) << "another segment of that kind";
  EXPECT_EQ(orientation_of(changed(4, std::string("\0\1", 2))), 1) << "a segment shorter than its length";
  for (std::size_t size = 0; size < tiff + 32; ++size)
    EXPECT_EQ(orientation_of(whole.substr(0, size)), 1) << size << " bytes";
  EXPECT_EQ(orientation_of(whole.substr(0, tiff + 32)), 6);
  // More entries than there are: those that are there count.
  EXPECT_EQ(orientation_of(changed(tiff + 8, "\xFF\xFF")), 6);
}

TEST(Exif, SegmentsBeforeItAndFilling) {
  std::string bytes = with_orientation(picture(), 3);
  bytes.insert(2, std::string("\xFF\xFF\xFE\0\4hi", 7));  // a filling byte, a comment
  EXPECT_EQ(orientation_of(bytes), 3);
}

TEST(Exif, TheEightOrientations) {
  const Image image{2,
                    3,
                    1,
                    {1, 2, 3,  //
                     4, 5, 6}};
  const std::vector<std::vector<std::uint8_t>> upright{
      {1, 2, 3, 4, 5, 6}, {3, 2, 1, 6, 5, 4}, {6, 5, 4, 3, 2, 1}, {4, 5, 6, 1, 2, 3},
      {1, 4, 2, 5, 3, 6}, {4, 1, 5, 2, 6, 3}, {6, 3, 5, 2, 4, 1}, {3, 6, 2, 5, 1, 4}};
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const Image turned = turned_upright(image, orientation);
    EXPECT_EQ(turned.pixels, upright[static_cast<std::size_t>(orientation - 1)]) << orientation;
    EXPECT_EQ(turned.height, orientation < 5 ? 2 : 3);
    EXPECT_EQ(turned.width, orientation < 5 ? 3 : 2);
  }
  const Image colour{1, 2, 3, {1, 2, 3, 4, 5, 6}};
  EXPECT_EQ(turned_upright(colour, 6).pixels, colour.pixels) << "the channels of a pixel stay together";
  EXPECT_EQ(turned_upright(colour, 8).pixels, (std::vector<std::uint8_t>{4, 5, 6, 1, 2, 3}));
}

}  // namespace
}  // namespace lowtide
