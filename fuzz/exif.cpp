#include "lowtide/data/exif.h"

#include <cstddef>
#include <cstdint>

// Whatever the file, the orientation is one of the eight, and turns pixels without losing any.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lowtide;
  const int orientation = exif_orientation({reinterpret_cast<const std::byte*>(data), size});
  if (orientation < 1 || orientation > 8) __builtin_trap();
  const Image image{2, 3, 1, {1, 2, 3, 4, 5, 6}};
  const Image turned = turned_upright(image, orientation);
  if (turned.height != (orientation < 5 ? 2 : 3) || turned.height * turned.width != 6) __builtin_trap();
  int sum = 0;
  for (const std::uint8_t pixel : turned.pixels) sum += pixel;
  if (sum != 21) __builtin_trap();
  return 0;
}
