#include "lowtide/schedule/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include "lowtide/schedule/text.h"

namespace lowtide {
namespace {

constexpr int kColumns = 72;  // with five of labels and axis: fits 80
constexpr int kMostRows = 12;

// A grid of dots, `across` × `down` of them to a character. Row 0 is the lowest.
class Canvas {
 public:
  Canvas(int columns, int rows, int across, int down)
      : across_(across),
        down_(down),
        dots_(static_cast<std::size_t>(rows) * down,
              std::vector<bool>(static_cast<std::size_t>(columns) * across)) {}

  void set(int x, int y) { dots_.at(y).at(x) = true; }

  // The eight dots of a braille character are the bits of its code point, from U+2800, in this order:
  // 1 4 / 2 5 / 3 6 / 7 8, from the top.
  std::string braille(int column, int row) const {
    constexpr int kBit[4][2] = {{6, 7}, {2, 5}, {1, 4}, {0, 3}};  // by height above the character's foot
    unsigned code = 0;
    for (int y = 0; y < 4; ++y) {
      for (int x = 0; x < 2; ++x) code |= get(column * 2 + x, row * 4 + y) ? 1u << kBit[y][x] : 0u;
    }
    if (code == 0) return " ";
    return {'\xE2', static_cast<char>(0xA0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
  }

  std::string character(int column, int row) const {
    if (across_ == 2 && down_ == 4) return braille(column, row);
    return get(column, row) ? "#" : " ";
  }

 private:
  bool get(int x, int y) const { return dots_.at(y).at(x); }

  int across_;
  int down_;
  std::vector<std::vector<bool>> dots_;
};

// The bits shown, one character row each while there are few enough; a single level gets air around it.
struct Scale {
  explicit Scale(const std::vector<BitRange>& columns) {
    for (const BitRange& column : columns) {
      shown.low = std::min(shown.low, column.low);
      shown.high = std::max(shown.high, column.high);
    }
    const int air = shown.low == shown.high ? 1 : 0;
    low = shown.low - air;
    high = shown.high + air;
    rows = std::min(high - low + 1, kMostRows);
  }
  int dot(int bits, int down) const {
    return ((bits - low) * down * (rows - 1) + (high - low) / 2) / (high - low) + down / 4;
  }
  std::string label(int row) const {
    const int bits = low + (row * (high - low) + (rows - 1) / 2) / (rows - 1);
    return bits >= shown.low && bits <= shown.high ? fmt::format("{}", bits) : "";
  }

  BitRange shown{kMostBits, kFewestBits};
  int low = 0;
  int high = 0;
  int rows = 0;
};

Canvas draw(const std::vector<BitRange>& columns, const Scale& scale, int across, int down) {
  Canvas canvas(kColumns, scale.rows, across, down);
  BitRange previous = columns.front();
  for (std::size_t x = 0; x < columns.size(); ++x) {
    // Joined with the column before, so that a jump is a line and not two loose ends.
    const int low = std::min(columns[x].low, previous.high);
    const int high = std::max(columns[x].high, previous.low);
    for (int y = scale.dot(low, down); y <= scale.dot(high, down); ++y) canvas.set(static_cast<int>(x), y);
    previous = columns[x];
  }
  return canvas;
}

// Where the quarters of the steps lie.
std::string step_labels(std::int64_t steps) {
  constexpr int kIndent = 6;
  const int ticks = steps >= 4 ? 4 : 1;
  std::string line;
  for (int i = 0; i <= ticks; ++i) {
    const std::string label = fmt::format("{}", steps / ticks * i + steps % ticks * i / ticks);
    const int center = kIndent + kColumns * i / ticks;
    const int length = static_cast<int>(label.size());
    const int at = std::clamp(center - length / 2, kIndent, kIndent + kColumns - length);
    if (at <= static_cast<int>(line.size()) && i > 0) continue;  // numbers too long to stand side by side
    line.resize(static_cast<std::size_t>(at), ' ');
    line += label;
  }
  return line;
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

Charset terminal_charset() {
  const std::string terminal = environment("TERM");
  // The Linux console has UTF-8, but no braille in its fonts.
  if (terminal == "dumb" || terminal == "linux") return Charset::kAscii;
  for (const char* variable : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string locale = environment(variable);
    if (locale.empty()) continue;
    const std::string_view encoding =
        std::string_view(locale).substr(std::min(locale.find('.'), locale.size()));
    return equal_ignoring_case(encoding, ".utf-8") || equal_ignoring_case(encoding, ".utf8")
               ? Charset::kUtf8
               : Charset::kAscii;
  }
  return Charset::kAscii;
}

std::string text_plot(const std::vector<BitRun>& runs, Charset charset) {
  const bool utf8 = charset == Charset::kUtf8;
  const int across = utf8 ? 2 : 1;
  const int down = utf8 ? 4 : 1;
  const std::vector<BitRange> columns = envelope(runs, kColumns * across);
  if (columns.empty()) return "";
  const Scale scale(columns);
  const Canvas canvas = draw(columns, scale, across, down);
  std::string text = "bits\n";
  for (int row = scale.rows - 1; row >= 0; --row) {
    std::string line;
    for (int column = 0; column < kColumns; ++column) line += canvas.character(column, row);
    line.erase(line.find_last_not_of(' ') + 1);
    text += fmt::format("{:>4} {}{}\n", scale.label(row), utf8 ? "┤" : "|", line);
  }
  text += fmt::format("     {}", utf8 ? "└" : "+");
  for (int column = 1; column <= kColumns; ++column) {
    const bool tick = column % (kColumns / 4) == 0;
    text += utf8 ? (tick ? "┴" : "─") : (tick ? "+" : "-");
  }
  return text + fmt::format("\n{}\n{:>{}}\n", step_labels(step_count(runs)), "step", 6 + kColumns / 2 + 2);
}

}  // namespace lowtide
