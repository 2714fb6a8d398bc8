#include "lowtide/data/exif.h"

#include <optional>
#include <string_view>

namespace lowtide {
namespace {

using namespace std::string_view_literals;

// Whole numbers within a text; nothing beyond its end.
struct Numbers {
  std::string_view text;
  bool little_endian = false;

  std::optional<std::size_t> at(std::size_t place, std::size_t bytes) const {
    if (place > text.size() || bytes > text.size() - place) return std::nullopt;
    std::size_t value = 0;
    for (std::size_t i = 0; i < bytes; ++i) {
      const std::size_t next = little_endian ? place + bytes - 1 - i : place + i;
      value = value << 8 | static_cast<std::uint8_t>(text[next]);
    }
    return value;
  }
};

// The orientation in the first directory of a TIFF structure (EXIF 2.3, 4.6.2 and 4.6.4), whose entries are tag, type,
// count, and a value at 8 bytes.
std::optional<int> orientation_of_tiff(std::string_view tiff) {
  constexpr std::size_t kEntry = 12, kOrientation = 0x0112, kShort = 3;
  const bool little_endian = tiff.starts_with("II*\0"sv);
  if (!little_endian && !tiff.starts_with("MM\0*"sv)) return std::nullopt;
  const Numbers numbers{tiff, little_endian};
  const std::size_t directory = numbers.at(4, 4).value_or(tiff.size());
  const std::size_t entries = numbers.at(directory, 2).value_or(0);
  for (std::size_t i = 0; i < entries; ++i) {
    const std::size_t entry = directory + 2 + i * kEntry;
    const auto tag = numbers.at(entry, 2);
    if (!tag) return std::nullopt;
    if (*tag != kOrientation) continue;
    const auto value = numbers.at(entry + 8, 2);
    if (numbers.at(entry + 2, 2) != kShort || !value || *value < 1 || *value > 8) return std::nullopt;
    return static_cast<int>(*value);
  }
  return std::nullopt;
}

}  // namespace

int exif_orientation(ByteSpan jpeg) {
  constexpr std::size_t kMarker = 0xFF, kApp1 = 0xE1, kStartOfScan = 0xDA;
  constexpr std::string_view kExif = "Exif\0\0"sv;
  const Numbers numbers{text_of(jpeg)};
  std::size_t place = 2;  // after the start of the image
  while (numbers.at(place, 1) == kMarker) {
    const auto kind = numbers.at(place + 1, 1), length = numbers.at(place + 2, 2);
    if (kind == kMarker) {  // fills up
      ++place;
      continue;
    }
    if (kind == kStartOfScan || !length || *length < 2) break;
    const std::string_view segment = numbers.text.substr(place + 4, *length - 2);
    if (kind == kApp1 && segment.starts_with(kExif))
      return orientation_of_tiff(segment.substr(kExif.size())).value_or(1);
    place += 2 + *length;
  }
  return 1;
}

Image turned_upright(Image image, int orientation) {
  if (orientation == 1) return image;
  // Which source pixel lies at (y, x): 5 to 8 exchange rows and columns, and each may run backwards.
  const bool exchanged = orientation >= 5;
  const bool rows_backwards = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const bool columns_backwards = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  Image result{
      exchanged ? image.width : image.height, exchanged ? image.height : image.width, image.channels, {}};
  result.pixels.reserve(image.pixels.size());
  for (int y = 0; y < result.height; ++y) {
    for (int x = 0; x < result.width; ++x) {
      const int row = exchanged ? x : y, column = exchanged ? y : x;
      const std::uint8_t* pixel =
          image.row(rows_backwards ? image.height - 1 - row : row) +
          static_cast<std::ptrdiff_t>(columns_backwards ? image.width - 1 - column : column) * image.channels;
      result.pixels.insert(result.pixels.end(), pixel, pixel + image.channels);
    }
  }
  return result;
}

}  // namespace lowtide
