#include <fmt/format.h>

#include <array>

#include "lowtide/io/digest.h"
#include "lowtide/io/safetensors.h"

namespace lowtide {
namespace {

constexpr const char* kDataDigest = "data_xxh128";
constexpr const char* kHeaderDigest = "header_xxh128";
constexpr std::string_view kBlank = "00000000000000000000000000000000";

// Where a digest stands in the header. Within a string of JSON its quotes would be escaped, and a tensor of that name has an
// object for a value: the text occurs once.
std::size_t place_of(const char* digest, std::string_view header) {
  for (const char before : {'{', ','}) {
    const std::string text = fmt::format("{}\"{}\":\"", before, digest);
    if (const std::size_t found = header.find(text); found != header.npos) return found + text.size();
  }
  return header.npos;
}

std::string digest_of_header(std::string_view header, std::size_t place) {
  const std::array pieces{bytes_of(header.substr(0, place)), bytes_of(kBlank),
                          bytes_of(header.substr(place + kBlank.size()))};
  return xxh128(pieces);
}

UserError changed(const std::string& name, std::string_view what) {
  return UserError(fmt::format(
      "{}: {} are not those that were written: the file is damaged, or was changed; use a copy or another",
      name, what));
}

}  // namespace

EncodedSafetensors encode_sealed_safetensors(std::span<const TensorView> tensors, Metadata metadata) {
  metadata[kDataDigest] = metadata[kHeaderDigest] = kBlank;
  EncodedSafetensors encoded = encode_safetensors(tensors, metadata);
  std::string& header = encoded.header;
  header.replace(place_of(kDataDigest, header), kBlank.size(), xxh128(encoded.data));
  const std::size_t place = place_of(kHeaderDigest, header);
  header.replace(place, kBlank.size(), digest_of_header(header, place));
  return encoded;
}

void check_sealed_header(const Safetensors& file, const std::string& name) {
  const std::string_view header = text_of(file.header);
  const std::size_t place = place_of(kHeaderDigest, header);
  const bool whole = place != header.npos && place + kBlank.size() <= header.size();
  if (!whole || digest_of_header(header, place) != header.substr(place, kBlank.size()))
    throw changed(name, "the bytes of its header");
}

void check_sealed_data(const Safetensors& file, const std::string& name) {
  const auto digest = file.metadata.find(kDataDigest);
  if (digest == file.metadata.end() || xxh128(std::span(&file.data, 1)) != digest->second)
    throw changed(name, "the bytes of its tensors");
}

}  // namespace lowtide
