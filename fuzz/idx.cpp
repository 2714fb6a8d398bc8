#include "lowtide/data/idx.h"

#include <cstddef>
#include <cstdint>

#include "lowtide/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const lowtide::ByteSpan bytes(reinterpret_cast<const std::byte*>(data), size);
  try {
    const lowtide::IdxImages images = lowtide::parse_idx_images(bytes, "input");
    if (images.pixels.size() + 16 != size) __builtin_trap();
  } catch (const lowtide::UserError&) {
  }
  try {
    for (const std::uint8_t label : lowtide::parse_idx_labels(bytes, 10, "input")) {
      if (label > 9) __builtin_trap();
    }
  } catch (const lowtide::UserError&) {
  }
  return 0;
}
