#include "lowtide/io/gzip.h"

#include <zlib.h>

#include <random>

#include "tests/io/scratch.h"

namespace lowtide {
namespace {

constexpr std::size_t kPlenty = 10'000'000;

std::string gzip(const std::string& text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string decompress(const std::string& compressed, std::size_t max_bytes = kPlenty) {
  return std::string(text_of(decompress_gzip(bytes_of(compressed), "x.gz", max_bytes)));
}

std::string noise(std::size_t size) {
  std::mt19937 random(1);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

TEST(Gzip, ReturnsWhatWasCompressed) {
  for (const std::string& text :
       {std::string(), std::string("abc"), std::string(1'000'000, 'a'), noise(300'000)}) {
    EXPECT_EQ(decompress(gzip(text)), text);
  }
}

TEST(Gzip, JoinsMembers) { EXPECT_EQ(decompress(gzip("one ") + gzip("") + gzip("two")), "one two"); }

TEST(Gzip, IsCutShortAtEveryByte) {
  const std::string compressed = gzip("some text, some more text and some text again");
  for (std::size_t size = 2; size < compressed.size(); ++size) {
    EXPECT_TRUE(contains(user_error([&] { decompress(compressed.substr(0, size)); }), "x.gz", "cut short"))
        << size;
  }
}

TEST(Gzip, NoticesEveryDamagedByteOfTheData) {
  const std::string whole = gzip("some text, some more text and some text again");
  constexpr std::size_t kHeader = 10;  // its time and system are not covered by the checksum
  for (std::size_t i = kHeader; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x55);
    EXPECT_TRUE(contains(user_error([&] { decompress(damaged); }), "damaged gzip file")) << i;
  }
}

TEST(Gzip, SaysWhichChecksumIsWrong) {
  std::string compressed = gzip("abc");
  compressed[compressed.size() - 8] ^= 1;
  EXPECT_TRUE(contains(user_error([&] { decompress(compressed); }), "incorrect data check"));
  compressed = gzip("abc");
  compressed[compressed.size() - 1] ^= 1;
  EXPECT_TRUE(contains(user_error([&] { decompress(compressed); }), "incorrect length check"));
}

TEST(Gzip, RefusesWhatFollows) {
  EXPECT_TRUE(
      contains(user_error([&] { decompress(gzip("abc") + "garbage"); }), "7 bytes that are not gzip"));
  EXPECT_TRUE(contains(user_error([&] { decompress(gzip("abc") + '\x1f'); }), "1 bytes that are not gzip"));
}

TEST(Gzip, BoundsWhatItDecompresses) {
  const std::string bomb = gzip(std::string(5'000'000, '\0'));
  EXPECT_TRUE(contains(user_error([&] { decompress(bomb, 4'999'999); }), "x.gz", "4999999 bytes"));
  EXPECT_EQ(decompress(bomb, 5'000'000).size(), 5'000'000u);
  EXPECT_EQ(decompress(bomb, SIZE_MAX).size(), 5'000'000u);
  EXPECT_EQ(decompress(gzip(""), 0), "");
  EXPECT_TRUE(contains(user_error([&] { decompress(gzip("a"), 0); }), "0 bytes"));
  EXPECT_TRUE(contains(user_error([&] { decompress(gzip("abc") + gzip("def"), 5); }), "5 bytes"));
}

TEST(Gzip, RefusesWhatIsNotGzip) {
  EXPECT_TRUE(contains(user_error([&] { decompress(""); }), "does not begin"));
  EXPECT_TRUE(contains(user_error([&] { decompress("abc"); }), "does not begin"));
}

TEST(ReadMaybeGzip, TellsByTheFirstBytes) {
  const ScratchFolder folder;
  write_atomically(folder / "plain.gz", "plain");
  write_atomically(folder / "compressed", gzip("compressed"));
  write_atomically(folder / "empty", "");
  const auto read = [&](const std::string& name, std::size_t size) {
    return std::string(text_of(read_maybe_gzip(folder / name, 3, [=](ByteSpan) { return size; })));
  };
  EXPECT_EQ(read("plain.gz", 5), "plain");
  EXPECT_EQ(read("compressed", 10), "compressed");
  EXPECT_EQ(read("empty", 0), "");
  EXPECT_TRUE(contains(user_error([&] { read("plain.gz", 4); }), (folder / "plain.gz").string(),
                       "4 expected at most"));
  EXPECT_TRUE(
      contains(user_error([&] { read("compressed", 9); }), (folder / "compressed").string(), "the 9 bytes"));
  EXPECT_TRUE(contains(user_error([&] { read("none", 4); }), "no such file"));
}

TEST(ReadMaybeGzip, AsksTheFrontForTheSize) {
  const ScratchFolder folder;
  write_atomically(folder / "plain", "abcdef");
  write_atomically(folder / "compressed", gzip("abcdef"));
  write_atomically(folder / "members", gzip("a") + gzip("") + gzip("bcdef"));
  for (const char* name : {"plain", "compressed", "members"}) {
    for (const std::size_t count : {0, 1, 4, 6, 7, 100}) {
      std::string front;
      const auto whole = read_maybe_gzip(folder / name, count, [&](ByteSpan bytes) {
        front = text_of(bytes);
        return 6;
      });
      EXPECT_EQ(text_of(whole), "abcdef");
      EXPECT_EQ(front, std::string("abcdef").substr(0, count)) << name << " " << count;
    }
  }
}

TEST(ReadMaybeGzip, DecompressesNoMoreThanTheFrontPromises) {
  const ScratchFolder folder;
  // A thousand members of a megabyte each, the last of which is damaged: were it reached, it would be told.
  std::string bomb;
  const std::string member = gzip(std::string(1 << 20, '\0'));
  for (int i = 0; i < 1000; ++i) bomb += member;
  write_atomically(folder / "bomb", bomb + "damaged");
  EXPECT_TRUE(
      contains(user_error([&] { read_maybe_gzip(folder / "bomb", 16, [](ByteSpan) { return 5000; }); }),
               "more than the 5000 bytes"));
}

}  // namespace
}  // namespace lowtide
