#include "lowtide/io/zip.h"

#include <fmt/format.h>
#include <zlib.h>

#include <new>
#include <utility>

#include "lowtide/io/json_check.h"

namespace lowtide {
namespace {

constexpr std::uint32_t kEntrySignature = 0x04034b50;
constexpr std::uint32_t kDirectorySignature = 0x02014b50;
constexpr std::uint32_t kEndSignature = 0x06054b50;
constexpr std::size_t kEntryHeader = 30;
constexpr std::size_t kDirectoryHeader = 46;
constexpr std::size_t kEndHeader = 22;
constexpr std::size_t kMaxComment = 65535;
constexpr std::uint32_t kStored = 0, kDeflated = 8;
constexpr std::uint32_t kInZip64 = 0xffffffff;  // the number is in an extra field

// Deflate's best: 258 bytes for a pair of one-bit codes, 1,032 for a byte. A size beyond that is a lie.
constexpr std::uint64_t kMaxRatio = 1032;

// Inflates into exactly `out.size()` bytes; false for anything else.
bool inflate_raw(ByteSpan compressed, std::span<std::byte> out) {
  z_stream stream{};
  // A negative window: deflate without zlib's own header.
  if (inflateInit2(&stream, -15) != Z_OK) throw std::bad_alloc();
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(compressed.data()));
  stream.avail_in = static_cast<uInt>(compressed.size());
  std::byte nothing{};  // zlib wants an address also for no bytes
  stream.next_out = reinterpret_cast<Bytef*>(out.empty() ? &nothing : out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int status = inflate(&stream, Z_FINISH);
  const bool whole = status == Z_STREAM_END && stream.avail_out == 0 && stream.avail_in == 0;
  inflateEnd(&stream);
  return whole;
}

}  // namespace

ZipArchive::ZipArchive(ByteSpan bytes, std::string name) : bytes_(bytes), name_(std::move(name)) {
  const std::size_t end = find_directory_end();
  const std::size_t count = number(end + 10, 2), size = number(end + 12, 4), begin = number(end + 16, 4);
  if (number(end + 4, 2) != 0 || number(end + 8, 2) != count) damaged("it is one part of several");
  if (begin == kInZip64 || size == kInZip64) damaged("it is of more than 4 GiB, which is not read");
  if (begin + size > end) damaged("its directory lies outside of it");
  read_directory(begin, begin + size, count);
}

std::uint32_t ZipArchive::number(std::size_t offset, std::size_t size) const {
  std::uint32_t value = 0;
  for (std::size_t i = size; i-- > 0;)
    value = value << 8 | std::to_integer<std::uint32_t>(bytes_[offset + i]);
  return value;
}

void ZipArchive::damaged(const std::string& what) const {
  throw UserError(
      fmt::format("{}: damaged or no zip archive: {}; fetch or copy the file again", name_, what));
}

// The last header of the file, which only a comment follows.
std::size_t ZipArchive::find_directory_end() const {
  if (bytes_.size() < kEndHeader) damaged("its end is missing");
  const std::size_t last = bytes_.size() - kEndHeader;
  for (std::size_t comment = 0; comment <= std::min(last, kMaxComment); ++comment) {
    if (number(last - comment, 4) == kEndSignature && number(last - comment + 20, 2) == comment) {
      return last - comment;
    }
  }
  damaged("its end is missing");
}

void ZipArchive::read_directory(std::size_t begin, std::size_t end, std::size_t count) {
  std::size_t at = begin;
  for (std::size_t i = 0; i < count; ++i) {
    if (end - at < kDirectoryHeader || number(at, 4) != kDirectorySignature)
      damaged("its directory is broken");
    const std::size_t name_size = number(at + 28, 2);
    const std::size_t record = kDirectoryHeader + name_size + number(at + 30, 2) + number(at + 32, 2);
    if (end - at < record) damaged("its directory is broken");
    const std::string entry_name(text_of(bytes_.subspan(at + kDirectoryHeader, name_size)));
    if ((number(at + 8, 2) & 1) != 0) damaged(fmt::format("{} is encrypted", shown(entry_name)));
    const Entry entry{.method = number(at + 10, 2),
                      .checksum = number(at + 16, 4),
                      .compressed_size = number(at + 20, 4),
                      .size = number(at + 24, 4),
                      .header = number(at + 42, 4)};
    if (!entries_.emplace(entry_name, entry).second)
      damaged(fmt::format("{} is there twice", shown(entry_name)));
    at += record;
  }
}

// Only the lengths are taken from the entry's own header: the other numbers may be missing there.
ByteSpan ZipArchive::data_of(const Entry& entry, const std::string& entry_name) const {
  const std::size_t at = entry.header;
  if (entry.compressed_size == kInZip64 || entry.size == kInZip64 || entry.header == kInZip64) {
    damaged(fmt::format("{} is of more than 4 GiB, which is not read", shown(entry_name)));
  }
  if (bytes_.size() < kEntryHeader || at > bytes_.size() - kEntryHeader || number(at, 4) != kEntrySignature) {
    damaged(fmt::format("{} is not where the directory says", shown(entry_name)));
  }
  const std::size_t begin = at + kEntryHeader + number(at + 26, 2) + number(at + 28, 2);
  if (begin > bytes_.size() || bytes_.size() - begin < entry.compressed_size) {
    damaged(fmt::format("{} is cut short", shown(entry_name)));
  }
  return bytes_.subspan(begin, entry.compressed_size);
}

std::vector<std::string> ZipArchive::entries() const {
  std::vector<std::string> names;
  for (const auto& [entry_name, entry] : entries_) names.push_back(entry_name);
  return names;
}

std::vector<std::byte> ZipArchive::read(const std::string& entry_name) const {
  const auto found = entries_.find(entry_name);
  if (found == entries_.end()) {
    throw UserError(fmt::format("{}: no {} in it; is it the right file?", name_, shown(entry_name)));
  }
  const Entry& entry = found->second;
  const ByteSpan data = data_of(entry, entry_name);
  std::vector<std::byte> content;
  if (entry.method == kStored && data.size() == entry.size) {
    content.assign(data.begin(), data.end());
  } else if (entry.method == kDeflated && entry.size <= data.size() * kMaxRatio) {
    content.resize(entry.size);
    if (!inflate_raw(data, content)) damaged(fmt::format("{} cannot be decompressed", shown(entry_name)));
  } else {
    damaged(fmt::format("{} is neither stored nor deflated as a whole", shown(entry_name)));
  }
  const auto checksum =
      crc32(0, reinterpret_cast<const Bytef*>(content.data()), static_cast<uInt>(content.size()));
  if (checksum != entry.checksum) damaged(fmt::format("the checksum of {} is wrong", shown(entry_name)));
  return content;
}

}  // namespace lowtide
