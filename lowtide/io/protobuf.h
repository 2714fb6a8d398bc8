#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

// Protobuf's wire format, as far as it is written here: fields are appended to a message one after the other, and a message
// is the bytes of a field of another.

namespace lowtide {

template <typename Unsigned>
void append_little_endian(std::string& out, Unsigned value) {
  for (std::size_t i = 0; i < sizeof(value); ++i)
    out.push_back(static_cast<char>((value >> (8 * i)) & 0xFFu));
}

// A key is (field number << 3 | kind).
enum class WireKind : std::uint64_t { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

inline void append_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>((value & 0x7F) | 0x80));
  out.push_back(static_cast<char>(value));
}

inline void append_key(std::string& out, std::uint64_t field, WireKind kind) {
  append_varint(out, field << 3 | static_cast<std::uint64_t>(kind));
}

inline void append_integer(std::string& out, std::uint64_t field, std::int64_t value) {
  append_key(out, field, WireKind::kVarint);
  append_varint(out, static_cast<std::uint64_t>(value));
}

inline void append_double(std::string& out, std::uint64_t field, double value) {
  append_key(out, field, WireKind::kFixed64);
  append_little_endian(out, std::bit_cast<std::uint64_t>(value));
}

inline void append_float(std::string& out, std::uint64_t field, float value) {
  append_key(out, field, WireKind::kFixed32);
  append_little_endian(out, std::bit_cast<std::uint32_t>(value));
}

inline void append_bytes(std::string& out, std::uint64_t field, std::string_view bytes) {
  append_key(out, field, WireKind::kLengthDelimited);
  append_varint(out, bytes.size());
  out.append(bytes);
}

}  // namespace lowtide
