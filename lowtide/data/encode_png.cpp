#include "lowtide/data/encode_png.h"

#include <png.h>

#include "lowtide/base/error.h"

namespace lowtide {

std::vector<std::byte> encode_rgb_png(const Image& image) {
  LOWTIDE_CHECK(image.channels == 3 && image.height > 0 && image.width > 0, "an image in colours");
  png_image header{};
  header.version = PNG_IMAGE_VERSION;
  header.width = static_cast<png_uint_32>(image.width);
  header.height = static_cast<png_uint_32>(image.height);
  header.format = PNG_FORMAT_RGB;
  png_alloc_size_t size =
      PNG_IMAGE_PNG_SIZE_MAX(header);  // an upper bound, which spares a first pass for the size
  std::vector<std::byte> bytes(size);
  const int written = png_image_write_to_memory(&header, bytes.data(), &size, /*convert_to_8_bit=*/0,
                                                image.pixels.data(), /*row_stride=*/0, nullptr);
  LOWTIDE_CHECK(written != 0, "libpng cannot write");
  bytes.resize(size);
  return bytes;
}

}  // namespace lowtide
