#include "lowtide/io/safetensors.h"

#include <cstdlib>

#include "fuzz/deep.h"

namespace lowtide {
namespace {

bool is_sound(const Safetensors& file) {
  try {
    check_sealed_header(file, "input");
    check_sealed_data(file, "input");
    return true;
  } catch (const UserError&) {
    return false;
  }
}

void try_file(ByteSpan file) {
  try {
    const Safetensors read = parse_safetensors(file, "input");
    const EncodedSafetensors encoded = encode_safetensors(read.tensors, read.metadata);
    std::string bytes = encoded.header;
    for (const ByteSpan piece : encoded.data) bytes += text_of(piece);
    const Safetensors again = parse_safetensors(bytes_of(bytes), "again");
    if (again.metadata != read.metadata || again.tensors.size() != read.tensors.size()) std::abort();
    for (std::size_t i = 0; i < read.tensors.size(); ++i) {
      const TensorView& a = read.tensors[i];
      const TensorView& b = again.tensors[i];
      const bool equal = a.name == b.name && a.dtype == b.dtype && a.shape == b.shape;
      if (!equal || text_of(a.data) != text_of(b.data)) std::abort();
    }
    const EncodedSafetensors sealed = encode_sealed_safetensors(read.tensors, read.metadata);
    bytes = sealed.header;
    for (const ByteSpan piece : sealed.data) bytes += text_of(piece);
    const Safetensors seen = parse_safetensors(bytes_of(bytes), "sealed");
    if (!is_sound(seen)) std::abort();
    is_sound(read);
  } catch (const UserError&) {
  }
}

}  // namespace
}  // namespace lowtide

// What is read must be readable again after it was written, and equal, and its seal be sound; all else must be a UserError.
// The input as a file, and as the header of one without tensors: few mutations would keep the header's length right.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lowtide;
  try_file(std::as_bytes(std::span(data, size)));
  const std::string header = deepened(data, size);
  std::string file;
  for (std::size_t i = 0; i < 8; ++i) file += static_cast<char>(header.size() >> (8 * i) & 0xff);
  try_file(bytes_of(file += header));
  return 0;
}
