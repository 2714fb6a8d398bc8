#include <cstddef>
#include <cstdint>

#include "lowtide/base/error.h"
#include "lowtide/io/npy.h"
#include "lowtide/io/zip.h"

// The input as an archive, and as an array: a checksum guards those within an archive from most mutations.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lowtide;
  const ByteSpan bytes(reinterpret_cast<const std::byte*>(data), size);
  try {
    const ZipArchive archive(bytes, "input");
    for (const std::string& entry : archive.entries()) {
      try {
        archive.read(entry);
      } catch (const UserError&) {
      }
    }
  } catch (const UserError&) {
  }
  try {
    const NpyArray array = parse_npy(bytes, "input");
    if (npy_floats(array).size() != array.size()) __builtin_trap();
    if (npy_integers(array, "input").size() != array.size()) __builtin_trap();
  } catch (const UserError&) {
  }
  return 0;
}
