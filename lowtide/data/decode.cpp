#include "lowtide/data/decode.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "lowtide/base/error.h"
#include "lowtide/data/decode_formats.h"
#include "lowtide/data/exif.h"

namespace lowtide {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kJpegStart = "\xFF\xD8\xFF"sv;
constexpr std::string_view kPngStart = "\x89PNG\r\n\x1A\n"sv;

bool is_jpeg(ByteSpan bytes) { return text_of(bytes).starts_with(kJpegStart); }

// RIFF, the file's size, WEBP.
bool is_webp(std::string_view text) {
  return text.size() >= 12 && text.starts_with("RIFF") && text.substr(8, 4) == "WEBP";
}

}  // namespace

Image decode_image(ByteSpan bytes, const std::string& name, const DecodeLimits& limits) {
  Image image = decode_stored_image(bytes, name, limits);
  return is_jpeg(bytes) ? turned_upright(std::move(image), exif_orientation(bytes)) : image;
}

Image decode_stored_image(ByteSpan bytes, const std::string& name, const DecodeLimits& limits) {
  const std::string_view text = text_of(bytes);
  if (is_jpeg(bytes)) return decode_jpeg(bytes, name, limits);
  if (text.starts_with(kPngStart)) return decode_png(bytes, name, limits);
  if (is_webp(text)) return decode_webp(bytes, name, limits);
  throw UserError(
      fmt::format("{}: neither a JPEG nor a PNG nor a WebP image ({} bytes)", name, bytes.size()));
}

bool has_image_extension(const std::filesystem::path& file) {
  constexpr std::array<std::string_view, 4> kExtensions{".jpg", ".jpeg", ".png", ".webp"};
  std::string extension = file.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return std::find(kExtensions.begin(), kExtensions.end(), extension) != kExtensions.end();
}

Image new_rgb_image(std::int64_t height, std::int64_t width, const std::string& name,
                    const DecodeLimits& limits) {
  if (height < 1 || width < 1 || height > limits.max_side || width > limits.max_side ||
      static_cast<std::size_t>(height * width) * 3 > limits.max_bytes) {
    throw UserError(fmt::format("{}: image of {}x{} pixels; expected at most {} a side and {} bytes of RGB",
                                name, width, height, limits.max_side, limits.max_bytes));
  }
  Image image{static_cast<int>(height), static_cast<int>(width), 3, {}};
  image.pixels.resize(static_cast<std::size_t>(height * width) * 3);
  return image;
}

}  // namespace lowtide
