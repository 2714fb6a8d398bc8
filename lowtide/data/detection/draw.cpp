#include "lowtide/data/detection/draw.h"

#include <algorithm>
#include <cmath>

#include "lowtide/base/error.h"

namespace lowtide {
namespace {

constexpr int kGlyphWidth = 5, kGlyphHeight = 8;  // the eighth row is for descenders
constexpr int kAdvance = kGlyphWidth + 1;

// A byte a column, from the left; its lowest bit is the top row.
using Glyph = std::array<std::uint8_t, kGlyphWidth>;

constexpr std::array<Glyph, 26> kLetters{{
    {0x20, 0x54, 0x54, 0x54, 0x78}, {0x7f, 0x48, 0x44, 0x44, 0x38}, {0x38, 0x44, 0x44, 0x44, 0x20},
    {0x38, 0x44, 0x44, 0x48, 0x7f}, {0x38, 0x54, 0x54, 0x54, 0x18}, {0x08, 0x7e, 0x09, 0x01, 0x02},
    {0x18, 0xa4, 0xa4, 0xa4, 0x7c}, {0x7f, 0x08, 0x04, 0x04, 0x78}, {0x00, 0x44, 0x7d, 0x40, 0x00},
    {0x40, 0x80, 0x84, 0x7d, 0x00}, {0x7f, 0x10, 0x28, 0x44, 0x00}, {0x00, 0x41, 0x7f, 0x40, 0x00},
    {0x7c, 0x04, 0x18, 0x04, 0x78}, {0x7c, 0x08, 0x04, 0x04, 0x78}, {0x38, 0x44, 0x44, 0x44, 0x38},
    {0xfc, 0x24, 0x24, 0x24, 0x18}, {0x18, 0x24, 0x24, 0x18, 0xfc}, {0x7c, 0x08, 0x04, 0x04, 0x08},
    {0x48, 0x54, 0x54, 0x54, 0x20}, {0x04, 0x3f, 0x44, 0x40, 0x20}, {0x3c, 0x40, 0x40, 0x20, 0x7c},
    {0x1c, 0x20, 0x40, 0x20, 0x1c}, {0x3c, 0x40, 0x30, 0x40, 0x3c}, {0x44, 0x28, 0x10, 0x28, 0x44},
    {0x1c, 0xa0, 0xa0, 0xa0, 0x7c}, {0x44, 0x64, 0x54, 0x4c, 0x44},
}};

constexpr std::array<Glyph, 10> kDigits{{
    {0x3e, 0x51, 0x49, 0x45, 0x3e},
    {0x00, 0x42, 0x7f, 0x40, 0x00},
    {0x42, 0x61, 0x51, 0x49, 0x46},
    {0x21, 0x41, 0x45, 0x4b, 0x31},
    {0x18, 0x14, 0x12, 0x7f, 0x10},
    {0x27, 0x45, 0x45, 0x45, 0x39},
    {0x3c, 0x4a, 0x49, 0x49, 0x30},
    {0x01, 0x71, 0x09, 0x05, 0x03},
    {0x36, 0x49, 0x49, 0x49, 0x36},
    {0x06, 0x49, 0x49, 0x29, 0x1e},
}};

Glyph glyph_of(char character) {
  if (character >= 'a' && character <= 'z') return kLetters[static_cast<std::size_t>(character - 'a')];
  if (character >= 'A' && character <= 'Z') return kLetters[static_cast<std::size_t>(character - 'A')];
  if (character >= '0' && character <= '9') return kDigits[static_cast<std::size_t>(character - '0')];
  if (character == '.') return {0x00, 0x60, 0x60, 0x00, 0x00};
  if (character == '-') return {0x08, 0x08, 0x08, 0x08, 0x08};
  return {};
}

void fill(Image& image, int left, int top, int right, int bottom, const Colour& colour) {
  for (int y = std::max(top, 0); y < std::min(bottom, image.height); ++y) {
    for (int x = std::max(left, 0); x < std::min(right, image.width); ++x) {
      const std::size_t at = (static_cast<std::size_t>(y) * static_cast<std::size_t>(image.width) +
                              static_cast<std::size_t>(x)) *
                             colour.size();
      std::copy(colour.begin(), colour.end(), image.pixels.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }
}

// Black or white, whichever is read more easily on the colour (ITU-R BT.601's luma).
Colour ink_on(const Colour& ground) {
  const double luma = 0.299 * ground[0] + 0.587 * ground[1] + 0.114 * ground[2];
  return luma > 140 ? Colour{0, 0, 0} : Colour{255, 255, 255};
}

}  // namespace

Colour colour_of(std::int32_t label) {
  // Hues at steps of the golden angle never come near each other.
  const double hue = std::fmod(label * 137.508, 360.0) / 60.0;
  const double rising = 1 - std::abs(std::fmod(hue, 2.0) - 1);
  const std::array<std::array<double, 3>, 6> sextants{
      {{1, rising, 0}, {rising, 1, 0}, {0, 1, rising}, {0, rising, 1}, {rising, 0, 1}, {1, 0, rising}}};
  Colour colour;
  for (std::size_t c = 0; c < colour.size(); ++c) {
    colour[c] = static_cast<std::uint8_t>(std::lround(40 + 215 * sextants[static_cast<std::size_t>(hue)][c]));
  }
  return colour;
}

void draw_box(Image& image, const BoundingBox& box, const Colour& colour, int thickness) {
  LOWTIDE_CHECK(image.channels == 3, "an image in colours");
  const auto pixel = [](float edge) { return static_cast<int>(std::lround(edge)); };
  const int left = pixel(box.left), top = pixel(box.top), right = pixel(box.right),
            bottom = pixel(box.bottom);
  fill(image, left, top, right, std::min(top + thickness, bottom), colour);
  fill(image, left, std::max(bottom - thickness, top), right, bottom, colour);
  fill(image, left, top, std::min(left + thickness, right), bottom, colour);
  fill(image, std::max(right - thickness, left), top, right, bottom, colour);
}

void draw_label(Image& image, int x, int y, std::string_view text, const Colour& colour, int size) {
  LOWTIDE_CHECK(image.channels == 3, "an image in colours");
  const int width = (kAdvance * static_cast<int>(text.size()) + 1) * size, height = (kGlyphHeight + 2) * size;
  const int top = y >= height ? y - height : y;
  const int left = std::max(0, std::min(x, image.width - width));
  fill(image, left, top, left + width, top + height, colour);
  const Colour ink = ink_on(colour);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const Glyph glyph = glyph_of(text[i]);
    for (int column = 0; column < kGlyphWidth; ++column) {
      for (int row = 0; row < kGlyphHeight; ++row) {
        if ((glyph[static_cast<std::size_t>(column)] >> row & 1) == 0) continue;
        const int px = left + (1 + kAdvance * static_cast<int>(i) + column) * size,
                  py = top + (1 + row) * size;
        fill(image, px, py, px + size, py + size, ink);
      }
    }
  }
}

}  // namespace lowtide
