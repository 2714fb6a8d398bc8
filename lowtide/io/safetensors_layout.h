#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "lowtide/io/safetensors.h"

namespace lowtide {

// What the reader and the writer of safetensors both know of the format.

inline constexpr std::size_t kLengthBytes = 8;
inline constexpr std::size_t kMaxHeaderBytes = 100'000'000;  // the reference implementation's bound
inline constexpr std::string_view kMetadataKey = "__metadata__";

struct DTypeEntry {
  DType dtype;
  std::string_view name;
  std::size_t size;
};

inline constexpr std::array<DTypeEntry, 10> kDTypes{{{DType::kF64, "F64", 8},
                                                     {DType::kF32, "F32", 4},
                                                     {DType::kF16, "F16", 2},
                                                     {DType::kBF16, "BF16", 2},
                                                     {DType::kI64, "I64", 8},
                                                     {DType::kI32, "I32", 4},
                                                     {DType::kI16, "I16", 2},
                                                     {DType::kI8, "I8", 1},
                                                     {DType::kU8, "U8", 1},
                                                     {DType::kBool, "BOOL", 1}}};

// The bytes that a tensor of that shape takes; nothing where the number does not fit 64 bits.
inline std::optional<std::uint64_t> tensor_bytes(DType dtype, std::span<const std::int64_t> shape) {
  std::uint64_t bytes = dtype_size(dtype);
  for (const std::int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(extent), &bytes))
      return std::nullopt;
  }
  return bytes;
}

}  // namespace lowtide
