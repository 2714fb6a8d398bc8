#include "lowtide/io/gzip.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <limits>

#include "lowtide/io/mapped_file.h"

namespace lowtide {
namespace {

constexpr std::size_t kMaxZlibChunk = std::numeric_limits<uInt>::max();

[[noreturn]] void damaged(const std::string& name, const std::string& what) {
  throw UserError(fmt::format("{}: damaged gzip file: {}; fetch or copy the file again", name, what));
}

// zlib's state, released when it goes out of scope.
class Inflater {
 public:
  Inflater() {
    // 15 is the largest window (32 KiB), 16 asks for the gzip format alone, with its checksum verified.
    LOWTIDE_CHECK(inflateInit2(&stream_, 15 + 16) == Z_OK, "zlib did not start");
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() { inflateEnd(&stream_); }

  z_stream& stream() { return stream_; }
  void next_member() { inflateReset(&stream_); }

 private:
  z_stream stream_{};
};

// A buffer that doubles as it fills, up to one byte over the limit: that byte proves that the limit is
// exceeded.
class BoundedOutput {
 public:
  BoundedOutput(const std::string& name, std::size_t max_bytes) : name_(name), max_bytes_(max_bytes) {}

  // Room for at least one byte.
  std::span<std::byte> room() {
    if (used_ == bytes_.size()) {
      constexpr std::size_t kFirst = 65536;
      const std::size_t wanted = std::max(kFirst, 2 * used_);
      bytes_.resize(max_bytes_ < wanted ? max_bytes_ + 1 : wanted);
    }
    return std::span(bytes_).subspan(used_);
  }

  void add(std::size_t count) {
    used_ += count;
    if (used_ > max_bytes_) {
      throw UserError(
          fmt::format("{}: holds more than the {} bytes expected at most once decompressed; is it the "
                      "right file?",
                      name_, max_bytes_));
    }
  }

  static bool done() { return false; }

  std::vector<std::byte> take() {
    bytes_.resize(used_);
    return std::move(bytes_);
  }

 private:
  const std::string& name_;
  std::size_t max_bytes_;
  std::vector<std::byte> bytes_;
  std::size_t used_ = 0;
};

// The first bytes; what follows is not decompressed.
class FrontOutput {
 public:
  explicit FrontOutput(std::size_t count) : bytes_(count) {}

  std::span<std::byte> room() { return std::span(bytes_).subspan(used_); }
  void add(std::size_t count) { used_ += count; }
  bool done() const { return used_ == bytes_.size(); }

  std::vector<std::byte> take() {
    bytes_.resize(used_);
    return std::move(bytes_);
  }

 private:
  std::vector<std::byte> bytes_;
  std::size_t used_ = 0;
};

// Hands on what it gets, from a buffer that is used again and again.
class PieceOutput {
 public:
  explicit PieceOutput(const std::function<void(ByteSpan)>& take) : take_(take) {}

  std::span<std::byte> room() { return bytes_; }
  void add(std::size_t count) { take_(ByteSpan(bytes_).first(count)); }
  static bool done() { return false; }

 private:
  const std::function<void(ByteSpan)>& take_;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(std::size_t{1} << 18);
};

// Decompresses one member from the front of `input`, or as much as the output wants; returns how many bytes of it that
// took.
template <typename Output>
std::size_t inflate_member(Inflater& inflater, ByteSpan input, Output& output, const std::string& name) {
  z_stream& stream = inflater.stream();
  std::size_t taken = 0;
  while (true) {
    const std::size_t offered = std::min(input.size() - taken, kMaxZlibChunk);
    // zlib reads through this pointer only, but its type predates const.
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(input.data() + taken));
    stream.avail_in = static_cast<uInt>(offered);
    const std::span<std::byte> room = output.room();
    const std::size_t room_size = std::min(room.size(), kMaxZlibChunk);
    stream.next_out = reinterpret_cast<Bytef*>(room.data());
    stream.avail_out = static_cast<uInt>(room_size);
    const int status = inflate(&stream, Z_NO_FLUSH);
    taken += offered - stream.avail_in;
    output.add(room_size - stream.avail_out);
    if (status == Z_STREAM_END || output.done()) return taken;
    if (status == Z_MEM_ERROR) throw std::bad_alloc();
    if (status == Z_BUF_ERROR) damaged(name, "it is cut short");
    if (status != Z_OK) damaged(name, stream.msg != nullptr ? stream.msg : "it cannot be decompressed");
  }
}

template <typename Output>
void inflate_members(ByteSpan compressed, Output& output, const std::string& name) {
  if (!is_gzip(compressed)) damaged(name, "it does not begin as a gzip file does");
  Inflater inflater;
  while (true) {
    compressed = compressed.subspan(inflate_member(inflater, compressed, output, name));
    if (compressed.empty() || output.done()) return;
    if (!is_gzip(compressed)) {
      damaged(name, fmt::format("{} bytes that are not gzip follow the data", compressed.size()));
    }
    inflater.next_member();
  }
}

}  // namespace

bool is_gzip(ByteSpan bytes) {
  return bytes.size() >= 2 && bytes[0] == std::byte{0x1f} && bytes[1] == std::byte{0x8b};
}

std::vector<std::byte> decompress_gzip(ByteSpan compressed, const std::string& name, std::size_t max_bytes) {
  BoundedOutput output(name, max_bytes);
  inflate_members(compressed, output, name);
  return output.take();
}

std::vector<std::byte> read_maybe_gzip(const std::filesystem::path& path, std::size_t front_bytes,
                                       const std::function<std::size_t(ByteSpan)>& whole_size) {
  const MappedFile file(path);
  const ByteSpan bytes = file.bytes();
  if (!is_gzip(bytes)) {
    const std::size_t size = whole_size(bytes.first(std::min(front_bytes, bytes.size())));
    if (bytes.size() <= size) return {bytes.begin(), bytes.end()};
    throw UserError(
        fmt::format("{}: holds {} bytes, more than the {} expected at most; is it the right file?",
                    path.string(), bytes.size(), size));
  }
  FrontOutput front(front_bytes);
  inflate_members(bytes, front, path.string());
  return decompress_gzip(bytes, path.string(), whole_size(front.take()));
}

void for_each_piece(const std::filesystem::path& path, const std::function<void(ByteSpan)>& take) {
  const MappedFile file(path);
  if (!is_gzip(file.bytes())) return take(file.bytes());
  PieceOutput output(take);
  inflate_members(file.bytes(), output, path.string());
}

std::string compress_gzip_runs(std::string_view bytes) {
  z_stream stream{};
  // Level 1 of 9, the largest window in the gzip format, the most memory.
  LOWTIDE_CHECK(deflateInit2(&stream, 1, Z_DEFLATED, 15 + 16, MAX_MEM_LEVEL, Z_RLE) == Z_OK,
                "zlib did not start");
  std::string compressed(deflateBound(&stream, bytes.size()), '\0');
  stream.next_out = reinterpret_cast<Bytef*>(compressed.data());
  int status = Z_OK;
  while (status == Z_OK) {  // more than once only where there are more bytes than zlib counts
    const std::size_t left = bytes.size() - stream.total_in;
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data() + stream.total_in));
    stream.avail_in = static_cast<uInt>(std::min(left, kMaxZlibChunk));
    stream.avail_out = static_cast<uInt>(std::min(compressed.size() - stream.total_out, kMaxZlibChunk));
    status = deflate(&stream, left <= kMaxZlibChunk ? Z_FINISH : Z_NO_FLUSH);
  }
  compressed.resize(stream.total_out);
  deflateEnd(&stream);
  LOWTIDE_CHECK(status == Z_STREAM_END, "zlib did not finish");
  return compressed;
}

}  // namespace lowtide
