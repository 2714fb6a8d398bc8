#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lowtide/io/file.h"
#include "lowtide/io/mapped_file.h"

namespace lowtide {

// The safetensors format (github.com/huggingface/safetensors): eight bytes with the header's length,
// little-endian; the header, a JSON object of name → {dtype, shape, data_offsets} with a map of strings under
// "__metadata__"; the tensors' bytes, little-endian and row-major, without holes.

enum class DType { kF64, kF32, kF16, kBF16, kI64, kI32, kI16, kI8, kU8, kBool };

std::size_t dtype_size(DType dtype);       // bytes of one element
std::string_view dtype_name(DType dtype);  // as the format spells it: "BF16"

// A tensor that someone else owns.
struct TensorView {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;  // empty for a scalar
  ByteSpan data;
};

using Metadata = std::map<std::string, std::string>;

// A file's content before it is a file: the data's pieces still lie where their owners have them.
struct EncodedSafetensors {
  std::string header;  // with the eight bytes of its length
  std::vector<ByteSpan> data;
};

// The same tensors and metadata give the same bytes. The header lists tensors in the order given, padded with
// spaces so that the data starts at a multiple of 8; the data lies in order of falling element size, the
// order given among equals, so that every tensor is aligned for its type. Names that are not UTF-8 are a
// UserError; names given twice, or data that does not fit its shape, are a mistake of ours.
EncodedSafetensors encode_safetensors(std::span<const TensorView> tensors, const Metadata& metadata);

// Writes without joining the tensors in memory; the path holds the old file or the whole new one.
void write_safetensors(const std::filesystem::path& path, const EncodedSafetensors& encoded);
void write_safetensors(const std::filesystem::path& path, std::span<const TensorView> tensors,
                       const Metadata& metadata);

struct Safetensors {
  Metadata metadata;
  std::vector<TensorView> tensors;  // in the header's order; the data points into the bytes that were parsed
  ByteSpan header, data;            // all of those bytes: up to the tensors, and theirs
};

// Everything in `bytes` is checked; what is wrong is a UserError that begins with `name`. Other programs'
// files may place a tensor where its type is not aligned: copy the data rather than cast it.
Safetensors parse_safetensors(ByteSpan bytes, const std::string& name);

// A sealed file has two digests in its metadata: `data_xxh128`, of the tensors' bytes, and `header_xxh128`, of all bytes
// before them, with zeros in the place of these digits. The header can so be trusted without reading the tensors; to other
// readers of the format they are two more strings.
EncodedSafetensors encode_sealed_safetensors(std::span<const TensorView> tensors, Metadata metadata);

// UserError where these bytes are not those that were sealed, or were never.
void check_sealed_header(const Safetensors& file, const std::string& name);
void check_sealed_data(const Safetensors& file, const std::string& name);

// A file that is mapped, not read: a tensor's pages are fetched when they are touched.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const Safetensors& content() const { return content_; }
  const Metadata& metadata() const { return content_.metadata; }
  const std::vector<TensorView>& tensors() const { return content_.tensors; }

  const TensorView* find(std::string_view tensor) const;  // nullptr where there is none
  const TensorView& at(std::string_view tensor) const;    // a UserError where there is none

 private:
  std::string name_;
  MappedFile file_;
  Safetensors content_;
  std::map<std::string, std::size_t, std::less<>> index_;
};

}  // namespace lowtide
