#pragma once

// The decoders behind decode_image(), which chooses between them; not for use elsewhere.

#include "lowtide/data/decode.h"

namespace lowtide {

Image decode_jpeg(ByteSpan bytes, const std::string& name, const DecodeLimits& limits);
Image decode_png(ByteSpan bytes, const std::string& name, const DecodeLimits& limits);
Image decode_webp(ByteSpan bytes, const std::string& name, const DecodeLimits& limits);

// A black RGB image of that size, or the UserError that it is larger than the limits.
Image new_rgb_image(std::int64_t height, std::int64_t width, const std::string& name,
                    const DecodeLimits& limits);

}  // namespace lowtide
