#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <unordered_set>

#include "lowtide/base/json.h"
#include "lowtide/io/safetensors.h"
#include "lowtide/io/safetensors_layout.h"

namespace lowtide {
namespace {

void check_tensors(std::span<const TensorView> tensors) {
  std::unordered_set<std::string_view> names;
  for (const TensorView& tensor : tensors) {
    LOWTIDE_CHECK(tensor.name != kMetadataKey, "a tensor cannot be named __metadata__");
    LOWTIDE_CHECK(names.insert(tensor.name).second, "two tensors are named " + tensor.name);
    const auto bytes = tensor_bytes(tensor.dtype, tensor.shape);
    LOWTIDE_CHECK(bytes && *bytes == tensor.data.size(), "the data does not fit the shape of " + tensor.name);
  }
}

// Without holes, a tensor is aligned if every size before it is a multiple of its element: falling sizes make
// it so.
std::vector<std::size_t> order_of_data(std::span<const TensorView> tensors) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return dtype_size(tensors[a].dtype) > dtype_size(tensors[b].dtype);
  });
  return order;
}

// Written as text piece by piece: an ordered Json object would search all its keys at every insertion.
std::string header_json(std::span<const TensorView> tensors, std::span<const std::uint64_t> begins,
                        const Metadata& metadata) {
  std::string json = "{";
  if (!metadata.empty()) json += fmt::format("\"{}\":{}", kMetadataKey, Json(metadata).dump());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorView& tensor = tensors[i];
    if (json.size() > 1) json += ',';
    json += fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                        Json(tensor.name).dump(), dtype_name(tensor.dtype), fmt::join(tensor.shape, ","),
                        begins[i], begins[i] + tensor.data.size());
  }
  json += '}';
  // Eight bytes of length come first: a header that is a multiple of 8 leaves the data at one too.
  json.resize((json.size() + 7) / 8 * 8, ' ');
  return json;
}

}  // namespace

EncodedSafetensors encode_safetensors(std::span<const TensorView> tensors, const Metadata& metadata) {
  check_tensors(tensors);
  EncodedSafetensors encoded;
  std::vector<std::uint64_t> begins(tensors.size());
  std::uint64_t end = 0;
  for (const std::size_t i : order_of_data(tensors)) {
    begins[i] = end;
    end += tensors[i].data.size();
    encoded.data.push_back(tensors[i].data);
  }
  std::string json;
  try {
    json = header_json(tensors, begins, metadata);
  } catch (const Json::type_error&) {
    throw UserError("cannot save tensors: a name or a value of the metadata is not valid UTF-8; rename it");
  }
  if (json.size() > kMaxHeaderBytes) {
    throw UserError(
        fmt::format("cannot save tensors: their names and the metadata take {} bytes, safetensors allows {}",
                    json.size(), kMaxHeaderBytes));
  }
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    encoded.header.push_back(static_cast<char>((json.size() >> (8 * i)) & 0xFFu));
  }
  encoded.header += json;
  return encoded;
}

void write_safetensors(const std::filesystem::path& path, const EncodedSafetensors& encoded) {
  write_atomically(path, [&](FileWriter& writer) {
    writer.write(encoded.header);
    for (const ByteSpan data : encoded.data) writer.write(data);
  });
}

void write_safetensors(const std::filesystem::path& path, std::span<const TensorView> tensors,
                       const Metadata& metadata) {
  write_safetensors(path, encode_safetensors(tensors, metadata));
}

}  // namespace lowtide
