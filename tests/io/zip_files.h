#pragma once

// Zip archives and .npy arrays, made by the tests.

#include <zlib.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace lowtide::testing {

// The low byte comes first, as on the machines that this runs on.
template <typename Number>
std::string bytes_of_numbers(const std::vector<Number>& numbers) {
  std::string bytes(numbers.size() * sizeof(Number), '\0');
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

inline std::string low_first(std::uint32_t value, std::size_t size) {
  return bytes_of_numbers<std::uint32_t>({value}).substr(0, size);
}

inline std::string deflated(const std::string& text) {
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

struct ZipOptions {
  bool deflate = true;
  std::string comment;
};

// Local headers carry an extra field, as NumPy writes it.
inline std::string zip_of(const std::vector<std::pair<std::string, std::string>>& files,
                          const ZipOptions& options = {}) {
  std::string archive, directory;
  for (const auto& [name, content] : files) {
    const std::string data = options.deflate ? deflated(content) : content;
    const auto checksum = static_cast<std::uint32_t>(
        crc32(0, reinterpret_cast<const Bytef*>(content.data()), static_cast<uInt>(content.size())));
    const std::string common = low_first(0, 2) + low_first(options.deflate ? 8 : 0, 2) + low_first(0, 4) +
                               low_first(checksum, 4) +
                               low_first(static_cast<std::uint32_t>(data.size()), 4) +
                               low_first(static_cast<std::uint32_t>(content.size()), 4) +
                               low_first(static_cast<std::uint32_t>(name.size()), 2);
    directory += "PK\1\2" + low_first(20, 2) + low_first(20, 2) + common + std::string(12, '\0') +
                 low_first(static_cast<std::uint32_t>(archive.size()), 4) + name;
    archive += "PK\3\4" + low_first(20, 2) + common + low_first(20, 2) + name + std::string(20, 'x') + data;
  }
  const auto count = static_cast<std::uint32_t>(files.size());
  return archive + directory + "PK\5\6" + low_first(0, 4) + low_first(count, 2) + low_first(count, 2) +
         low_first(static_cast<std::uint32_t>(directory.size()), 4) +
         low_first(static_cast<std::uint32_t>(archive.size()), 4) +
         low_first(static_cast<std::uint32_t>(options.comment.size()), 2) + options.comment;
}

// `type` as in '<f4', `shape` as in (3, 4).
inline std::string npy_of(const std::string& type, const std::string& shape, const std::string& data,
                          char version = 1) {
  std::string header = "{'descr': " + type + ", 'fortran_order': False, 'shape': " + shape + ", }";
  const std::size_t begin = version == 1 ? 10 : 12;
  header += std::string(63 - (begin + header.size()) % 64, ' ') + '\n';
  return std::string("\x93NUMPY") + version + '\0' +
         low_first(static_cast<std::uint32_t>(header.size()), version == 1 ? 2 : 4) + header + data;
}

template <typename Number>
std::string npy_vector(const std::string& type, const std::vector<Number>& numbers) {
  return npy_of("'" + type + "'", "(" + std::to_string(numbers.size()) + ",)", bytes_of_numbers(numbers));
}

}  // namespace lowtide::testing
