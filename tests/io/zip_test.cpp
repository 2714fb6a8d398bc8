#include "lowtide/io/zip.h"

#include <gmock/gmock.h>

#include "tests/io/scratch.h"
#include "tests/io/zip_files.h"

namespace lowtide {
namespace {

using ::testing::ElementsAre;
using testing::zip_of;
using testing::ZipOptions;

std::string content(const std::string& archive, const std::string& entry) {
  return std::string(text_of(ZipArchive(bytes_of(archive), "x.zip").read(entry)));
}

std::string error_of(const std::string& archive, const std::string& entry) {
  return user_error([&] { content(archive, entry); });
}

TEST(Zip, ReadsStoredAndDeflated) {
  const std::string long_text = std::string(100'000, 'a') + "b";
  for (const bool deflate : {false, true}) {
    const std::string archive =
        zip_of({{"one", "abc"}, {"two/three", long_text}, {"none", ""}}, {deflate, ""});
    EXPECT_THAT(ZipArchive(bytes_of(archive), "x.zip").entries(), ElementsAre("none", "one", "two/three"));
    EXPECT_EQ(content(archive, "one"), "abc");
    EXPECT_EQ(content(archive, "two/three"), long_text);
    EXPECT_EQ(content(archive, "none"), "");
  }
}

TEST(Zip, ACommentMayFollow) {
  // One that holds the mark of an end, too.
  EXPECT_EQ(content(zip_of({{"one", "abc"}}, {true, "said PK\5\6 and more"}), "one"), "abc");
  EXPECT_TRUE(contains(error_of(zip_of({}), "one"), "x.zip: no \"one\" in it"));
}

TEST(Zip, IsCutShortAtEveryByte) {
  const std::string archive = zip_of({{"one", "some text, some more text"}});
  for (std::size_t size = 0; size < archive.size(); ++size) {
    EXPECT_TRUE(contains(error_of(archive.substr(0, size), "one"), "x.zip: damaged or no zip archive"))
        << size;
  }
}

TEST(Zip, NoticesEveryDamagedByteOfTheData) {
  for (const bool deflate : {false, true}) {
    const std::string whole = zip_of({{"one", "some text, some more text"}}, {deflate, ""});
    const std::size_t begin = 30 + 3 + 20, end = whole.find("PK\1\2");
    for (std::size_t i = begin; i < end; ++i) {
      std::string archive = whole;
      archive[i] = static_cast<char>(archive[i] ^ 0x10);
      EXPECT_TRUE(contains(error_of(archive, "one"), "x.zip: damaged", "\"one\"")) << i;
    }
  }
}

TEST(Zip, WhatItDoesNotRead) {
  const std::string whole = zip_of({{"one", "some text, some more text"}});
  const std::size_t directory = whole.find("PK\1\2"), end = whole.find("PK\5\6");
  const auto changed = [&](std::size_t at, const std::string& bytes) {
    std::string archive = whole;
    archive.replace(at, bytes.size(), bytes);
    return error_of(archive, "one");
  };
  EXPECT_TRUE(contains(changed(directory + 8, "\1"), "\"one\" is encrypted"));
  EXPECT_TRUE(contains(changed(directory + 10, "\x0c"), "neither stored nor deflated"));
  EXPECT_TRUE(contains(changed(directory + 20, "\xff\xff\xff\xff"), "more than 4 GiB"));
  EXPECT_TRUE(
      contains(changed(directory + 24, "\xff\xff\xff\x7f"), "neither stored nor deflated as a whole"));
  EXPECT_TRUE(contains(changed(directory + 42, "\x05"), "not where the directory says"));
  EXPECT_TRUE(contains(changed(directory, "QQ"), "its directory is broken"));
  EXPECT_TRUE(contains(changed(end + 16, "\xff\xff\xff\x7f"), "outside of it"));
  EXPECT_TRUE(contains(changed(end + 16, "\xff\xff\xff\xff"), "more than 4 GiB"));
  EXPECT_TRUE(contains(changed(end + 4, "\1"), "one part of several"));
  EXPECT_TRUE(contains(error_of(zip_of({{"one", "a"}, {"one", "b"}}), "one"), "\"one\" is there twice"));
}

}  // namespace
}  // namespace lowtide
