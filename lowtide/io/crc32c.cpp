#include "lowtide/io/crc32c.h"

#include <array>

namespace lowtide {
namespace {

// The polynomial 0x1EDC6F41 with its bits reversed, since the checksum takes the lowest bit of a byte first.
constexpr std::uint32_t kPolynomial = 0x82F63B78u;

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit)
      remainder = (remainder >> 1) ^ ((remainder & 1u) != 0 ? kPolynomial : 0u);
    table[byte] = remainder;
  }
  return table;
}

constexpr std::array<std::uint32_t, 256> kTable = make_table();

}  // namespace

std::uint32_t crc32c(ByteSpan bytes) {
  std::uint32_t remainder = 0xFFFFFFFFu;
  for (const std::byte byte : bytes) {
    remainder = (remainder >> 8) ^ kTable[(remainder ^ static_cast<std::uint32_t>(byte)) & 0xFFu];
  }
  return ~remainder;
}

}  // namespace lowtide
