#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "lowtide/schedule/plot.h"
#include "lowtide/schedule/svg.h"

namespace lowtide {
namespace {

std::vector<BitRun> runs_of(const std::string& text, std::int64_t steps) {
  return run_lengths(*make_schedule(parse_schedule(text), steps), steps);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::size_t characters(const std::string& utf8) {
  return static_cast<std::size_t>(std::count_if(
      utf8.begin(), utf8.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

TEST(Envelope, CoversEveryStepOnce) {
  const std::vector<BitRun> runs{{{3, 8}, 5}, {{8, 8}, 1}, {{4, 8}, 4}};
  EXPECT_EQ(envelope(runs, 2), (std::vector<BitRange>{{3, 3}, {4, 8}}));
  EXPECT_EQ(envelope(runs, 1), (std::vector<BitRange>{{3, 8}}));
  EXPECT_EQ(envelope({{{0, 0}, 1}}, 3), (std::vector<BitRange>(3, BitRange{32, 32})));
  EXPECT_TRUE(envelope({}, 3).empty());
}

TEST(TextPlot, FitsEightyColumnsWhateverTheSchedule) {
  for (const char* text : {"RR 3:8 n=8", "CT 2:32 n=2", "static 8", "fp32", "LR 3:8 n=1", "CR 3:8 n=1000"}) {
    for (const std::int64_t steps : {1, 2, 1000, 123'457}) {
      if (steps < 1000 && text[0] != 's' && text[0] != 'f') continue;
      for (const Charset charset : {Charset::kAscii, Charset::kUtf8}) {
        for (const std::string& line : lines_of(text_plot(runs_of(text, steps), charset))) {
          EXPECT_LE(characters(line), 80u) << text << "\n" << line;
          EXPECT_TRUE(line.empty() || line.back() != ' ') << text;
        }
      }
    }
  }
}

TEST(TextPlot, DrawsTheBits) {
  const std::vector<std::string> lines = lines_of(text_plot({{{3, 8}, 36}, {{4, 8}, 36}}, Charset::kAscii));
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines[1], "   4 |" + std::string(36, ' ') + std::string(36, '#'));
  EXPECT_EQ(lines[2], "   3 |" + std::string(37, '#'));
}

TEST(Svg, IsWellFormedEnough) {
  const std::string svg = schedule_svg({{"a <b> & c", "saving 1 %", runs_of("RR 3:8 n=8", 1000)}});
  EXPECT_TRUE(svg.starts_with("<svg xmlns="));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  EXPECT_NE(svg.find("a &lt;b&gt; &amp; c"), std::string::npos);
}

TEST(Svg, StaysSmallForManyCycles) {
  EXPECT_LT(schedule_svg({{"CR", "", runs_of("CR 3:8 n=50000", 1'000'000)}}).size(), 60'000u);
}

}  // namespace
}  // namespace lowtide
