#include "lowtide/recipe/table_file.h"

#include <gtest/gtest.h>

#include "lowtide/io/file.h"
#include "lowtide/schedule/spec.h"
#include "tests/io/scratch.h"
#include "tests/schedule/error_of.h"

namespace lowtide {
namespace {

std::string read(const std::string& text) { return to_string(parse_table(lines_of_text(text, "bits.csv"))); }

TEST(TableFile, RunsOrRowsOfStepAndBits) {
  EXPECT_EQ(read("8x100\n5x1500 8x400\n"), "8x100 5x1500 8x400");
  EXPECT_EQ(read("\r\n8x100\r\n8x1"), "8x101");
  EXPECT_EQ(read("step,bits\n0,8\n1,8\n2,5\n"), "8x2 5x1");
  // Bits hold until the next row; the last is the last step.
  EXPECT_EQ(read("0,8\n100,5\n1600,8\n1999,8\n"), "8x100 5x1500 8x400");
}

TEST(TableFile, MistakesNameFileAndLine) {
  const std::vector<std::pair<std::string, std::string>> mistakes{
      {"", "bits.csv:1: it has no steps"},
      {"step,bits\n", "bits.csv:1: it has no steps"},
      {"8x100\n8y5\n", "bits.csv:2: '8y5' is not a run"},
      {"8x100\n\n1x5\n", "bits.csv:3: '1' is not a number of bits"},
      {"8x100\n5,8\n", "bits.csv:2: '5,8' is not a run like those before"},
      {"0,8\n8x100\n", "bits.csv:2: '8x100' is not a row"},
      {"1,8\n", "bits.csv:1: the first step is 1; expected 0"},
      {"0,8\n0,8\n", "bits.csv:2: step 0 follows step 0"},
      {"0,8\n5,99\n", "bits.csv:2: '99' is not a number of bits"},
      {"0,8,8\n", "bits.csv:1: '0,8,8' has 3 fields"},
      {"bits,step\n", "bits.csv:1: 'bits' is not a whole number"},
      {"0,8\n9223372036854775807,8\n", "bits.csv:2: a table of more than"},
  };
  for (const auto& [text, expected] : mistakes) {
    const std::string message = error_of([&] { read(text); });
    EXPECT_TRUE(message.starts_with(expected)) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
}

TEST(TableFile, HasALimit) {
  std::string text;
  for (std::size_t i = 0; i < BitTable::kMostRuns; ++i) text += i % 2 == 0 ? "8x1\n" : "4x1\n";
  EXPECT_EQ(parse_table(lines_of_text(text, "")).runs().size(), BitTable::kMostRuns);
  EXPECT_NE(error_of([&] { read(text + "8x1\n"); }).find("65537: a table of more than 65536 runs"),
            std::string::npos);
}

TEST(TableFile, IsReadIntoTheLine) {
  const ScratchFolder scratch;
  const std::string path = (scratch.path() / "bits.csv").string();
  write_atomically(path, "0,8\n9,4\n");
  EXPECT_EQ(with_tables_read("table @" + path + " grad=6"), "table 8x9 4x1 grad=6");
  EXPECT_EQ(with_tables_read("delayed 5 table @" + path), "delayed 5 table 8x9 4x1");
  EXPECT_EQ(with_tables_read("RR 3:8"), "RR 3:8");
  EXPECT_NE(error_of([&] { with_tables_read("table @" + path + ".not"); }).find("bits.csv.not"),
            std::string::npos);
}

}  // namespace
}  // namespace lowtide
