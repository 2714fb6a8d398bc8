#include "lowtide/data/decode.h"

#include <fmt/format.h>

#include <string_view>

#include "lowtide/base/error.h"
#include "lowtide/data/decode_formats.h"

namespace lowtide {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kJpegStart = "\xFF\xD8\xFF"sv;
constexpr std::string_view kPngStart = "\x89PNG\r\n\x1A\n"sv;

}  // namespace

Image decode_image(ByteSpan bytes, const std::string& name, const DecodeLimits& limits) {
  const std::string_view text = text_of(bytes);
  if (text.starts_with(kJpegStart)) return decode_jpeg(bytes, name, limits);
  if (text.starts_with(kPngStart)) return decode_png(bytes, name, limits);
  throw UserError(fmt::format("{}: neither a JPEG nor a PNG image ({} bytes)", name, bytes.size()));
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
