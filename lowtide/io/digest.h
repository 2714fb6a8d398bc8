#pragma once

#include <span>
#include <string>

#include "lowtide/io/file.h"

namespace lowtide {

// XXH3 with 128 bits of the pieces one after the other, as 32 hexadecimal digits. It reads as fast as memory does, and
// notices damage. Not forgery: but a digest that lies in the file it is of could be forged with any function.
std::string xxh128(std::span<const ByteSpan> pieces);

}  // namespace lowtide
