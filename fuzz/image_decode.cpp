#include <cstddef>
#include <cstdint>

#include "lowtide/base/error.h"
#include "lowtide/data/decode.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // Tight limits: what is to be found lies in the decoding, not in the filling of large pictures.
  const lowtide::DecodeLimits limits{512, 512 * 512 * 3};
  try {
    const lowtide::Image image =
        lowtide::decode_image({reinterpret_cast<const std::byte*>(data), size}, "input", limits);
    if (image.pixels.size() !=
        static_cast<std::size_t>(image.height) * static_cast<std::size_t>(image.width) * 3) {
      __builtin_trap();
    }
  } catch (const lowtide::UserError&) {
  }
  return 0;
}
