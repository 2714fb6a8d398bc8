#pragma once

#include <cstdint>

#include "lowtide/io/file.h"

namespace lowtide {

// CRC-32C (Castagnoli; RFC 3720, appendix B.4), the checksum of TFRecord files.
std::uint32_t crc32c(ByteSpan bytes);

}  // namespace lowtide
