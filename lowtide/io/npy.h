#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lowtide/io/file.h"

namespace lowtide {

// An array of NumPy's .npy format, versions 1 to 3 (numpy.lib.format): numbers with the low byte first, rows
// one after the other. Python objects, structures and strings are refused.
struct NpyArray {
  char kind = 0;               // f: float, i: signed, u: unsigned, b: truth
  std::size_t item_bytes = 0;  // 1, 2, 4 or 8; of floats 4 or 8
  std::vector<std::int64_t> shape;
  ByteSpan data;  // within the bytes that were parsed

  std::size_t size() const { return data.size() / item_bytes; }
};

// `name` begins the UserError about bytes that are no such array, or hold more or less than its shape says.
NpyArray parse_npy(ByteSpan bytes, const std::string& name);

// The numbers of an array, in order. UserError for floats where whole numbers are expected, and for unsigned
// ones beyond 2^63.
std::vector<float> npy_floats(const NpyArray& array);
std::vector<std::int64_t> npy_integers(const NpyArray& array, const std::string& name);

}  // namespace lowtide
