#include <fmt/format.h>
#include <webp/decode.h>

#include "lowtide/base/error.h"
#include "lowtide/data/decode_formats.h"

namespace lowtide {
namespace {

const char* reason(VP8StatusCode status) {
  switch (status) {
    case VP8_STATUS_NOT_ENOUGH_DATA:
    case VP8_STATUS_SUSPENDED:
      return "the file ends early";
    case VP8_STATUS_UNSUPPORTED_FEATURE:
      return "of a kind that libwebp does not know";
    case VP8_STATUS_OUT_OF_MEMORY:
      return "not enough memory";
    default:
      return "its data is not that of a picture";
  }
}

}  // namespace

Image decode_webp(ByteSpan bytes, const std::string& name, const DecodeLimits& limits) {
  const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
  const auto expect_ok = [&](VP8StatusCode status) {
    if (status != VP8_STATUS_OK) throw UserError(fmt::format("{}: damaged WebP: {}", name, reason(status)));
  };
  WebPDecoderConfig config;
  LOWTIDE_CHECK(WebPInitDecoderConfig(&config) != 0, "libwebp does not match its header");
  expect_ok(WebPGetFeatures(data, bytes.size(), &config.input));
  if (config.input.has_animation != 0)
    throw UserError(fmt::format("{}: an animated WebP; expected one picture", name));
  Image image = new_rgb_image(config.input.height, config.input.width, name, limits);
  config.output.colorspace = MODE_RGB;
  config.output.is_external_memory = 1;  // nothing to free afterwards
  config.output.u.RGBA = {image.pixels.data(), image.width * image.channels, image.pixels.size()};
  expect_ok(WebPDecode(data, bytes.size(), &config));
  return image;
}

}  // namespace lowtide
