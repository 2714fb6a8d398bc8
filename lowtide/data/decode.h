#pragma once

#include <cstddef>
#include <string>

#include "lowtide/data/image.h"
#include "lowtide/io/file.h"

namespace lowtide {

// A file of a few hundred bytes can claim an image of gigabytes: what is larger than this is refused unread.
struct DecodeLimits {
  int max_side = 20000;
  std::size_t max_bytes = std::size_t{1} << 28;  // of decoded RGB: some 9,400 × 9,400 pixels
};

// A JPEG, PNG or WebP file as an RGB image. Its first bytes say which it is: ImageNet holds a PNG that is called
// .JPEG. Grey is expanded to three channels, alpha is dropped, 16 bits become 8, CMYK becomes RGB; a JPEG is turned
// as its EXIF orientation says. Anything damaged, also what a decoder could patch over (a file cut short), is a
// UserError that begins with `name`. Thread-safe.
Image decode_image(ByteSpan bytes, const std::string& name, const DecodeLimits& limits = {});

// The same, not turned: the pixels as they lie in the file.
Image decode_stored_image(ByteSpan bytes, const std::string& name, const DecodeLimits& limits = {});

// Whether a file's name ends like that of a picture: .jpg, .jpeg, .png or .webp, in small letters or capitals.
bool has_image_extension(const std::filesystem::path& file);

}  // namespace lowtide
