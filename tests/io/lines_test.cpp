#include "lowtide/io/lines.h"

#include <gmock/gmock.h>
#include <zlib.h>

#include <fstream>

#include "tests/io/scratch.h"

namespace lowtide {
namespace {

using testing::ElementsAre;

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  for_each_line(text, [&](std::string_view line, std::size_t number) {
    lines.emplace_back(line);
    EXPECT_EQ(number, lines.size());
  });
  return lines;
}

std::vector<std::string> lines_of_file(const std::filesystem::path& path) {
  std::vector<std::string> lines;
  for_each_line_of(path, [&](std::string_view line, std::size_t number) {
    lines.emplace_back(line);
    EXPECT_EQ(number, lines.size());
  });
  return lines;
}

void write_gzip(const std::filesystem::path& path, const std::string& text) {
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
}

TEST(Lines, EndInEitherWay) {
  EXPECT_THAT(lines_of(""), ElementsAre());
  EXPECT_THAT(lines_of("a"), ElementsAre("a"));
  EXPECT_THAT(lines_of("a\n"), ElementsAre("a"));
  EXPECT_THAT(lines_of("a\r\n\nb\rc\r\n"), ElementsAre("a", "", "b\rc"));
  EXPECT_THAT(lines_of("\n\n"), ElementsAre("", ""));
}

TEST(Lines, OfFilesAreThoseOfTheirText) {
  // Lines of all lengths up to some that span several pieces of a compressed file.
  std::string text;
  for (std::size_t i = 0; i < 1200; ++i)
    text += std::string(i * i % 5003, 'x') + (i % 3 == 0 ? "\r\n" : "\n");
  text += std::string(1'000'000, 'y') + "\nlast, without an end";
  ScratchFolder folder;
  std::ofstream(folder / "plain") << text;
  write_gzip(folder / "compressed", text);
  std::ofstream(folder / "empty");
  EXPECT_EQ(lines_of_file(folder / "plain"), lines_of(text));
  EXPECT_EQ(lines_of_file(folder / "compressed"), lines_of(text));
  EXPECT_THAT(lines_of_file(folder / "empty"), ElementsAre());
}

TEST(Lines, DamagedAndMissingFiles) {
  ScratchFolder folder;
  write_gzip(folder / "cut.gz", std::string(5'000'000, 'x'));
  std::filesystem::resize_file(folder / "cut.gz", 2000);
  EXPECT_TRUE(contains(user_error([&] { lines_of_file(folder / "cut.gz"); }), "cut.gz", "cut short"));
  EXPECT_TRUE(contains(user_error([&] { lines_of_file(folder / "none"); }), "none", "no such file"));
}

TEST(Lines, HaveABound) {
  ScratchFolder folder;
  const std::string endless((std::size_t{1} << 26) + 1, 'x');
  write_gzip(folder / "bomb", "short\n" + endless);
  EXPECT_TRUE(contains(user_error([&] { lines_of_file(folder / "bomb"); }),
                       "bomb:2: a line of more than 67108864 bytes"));
  std::ofstream(folder / "plain") << endless << '\n';
  EXPECT_TRUE(contains(user_error([&] { lines_of_file(folder / "plain"); }), "plain:1: a line of more"));
}

TEST(Lines, SplitIntoFields) {
  EXPECT_THAT(split_fields("a,b,,c", ','), ElementsAre("a", "b", "", "c"));
  EXPECT_THAT(split_fields(",", ','), ElementsAre("", ""));
  EXPECT_THAT(split_fields("", ','), ElementsAre(""));
}

TEST(Lines, SplitAsCsv) {
  EXPECT_THAT(*split_csv("a,\"b,c\",,\"said \"\"d\"\"\""), ElementsAre("a", "b,c", "", "said \"d\""));
  EXPECT_THAT(*split_csv("\"\",\"\"\"\""), ElementsAre("", "\""));
  EXPECT_THAT(*split_csv(""), ElementsAre(""));
  for (const char* broken : {"\"a", "a\"b\"", "\"a\"b", "\"a\"\"", "\""})
    EXPECT_FALSE(split_csv(broken)) << broken;
}

TEST(Lines, NumbersAreWhole) {
  EXPECT_EQ(parse_number<int>("-12"), -12);
  EXPECT_EQ(parse_number<float>("1.5e-3"), 1.5e-3f);
  for (const char* text : {"", " 1", "1 ", "1x", "+1", "99999999999"})
    EXPECT_FALSE(parse_number<int>(text)) << text;
}

}  // namespace
}  // namespace lowtide
