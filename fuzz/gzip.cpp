#include "lowtide/io/gzip.h"

#include <cstdint>
#include <cstdlib>

// Whatever comes out stays within the bound; all else must be a UserError.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lowtide;
  constexpr std::size_t kMaxBytes = 1 << 20;
  try {
    if (decompress_gzip(std::as_bytes(std::span(data, size)), "input", kMaxBytes).size() > kMaxBytes)
      std::abort();
  } catch (const UserError&) {
  }
  return 0;
}
