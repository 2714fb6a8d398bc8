#include "lowtide/schedule/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace lowtide {
namespace {

// Beyond this many runs a picture cannot show each: its envelope is drawn, one column a pixel.
constexpr std::size_t kMostRuns = 2000;

struct Frame {
  double left = 0;
  double top = 0;
  double width = 0;
  double height = 0;
  BitRange bits;

  double y(int bit) const { return top + height * (bits.high - bit) / std::max(1, bits.high - bits.low); }
};

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '&') {
      result += "&amp;";
    } else if (c == '<') {
      result += "&lt;";
    } else if (c == '>') {
      result += "&gt;";
    } else {
      result += c;
    }
  }
  return result;
}

// 10100 as 10.1k, if three digits of it say all.
std::string short_count(std::int64_t count) {
  if (count >= 1'000'000 && count % 10'000 == 0) return fmt::format("{}M", static_cast<double>(count) / 1e6);
  if (count >= 10'000 && count % 100 == 0) return fmt::format("{}k", static_cast<double>(count) / 1e3);
  return fmt::format("{}", count);
}

std::string line_through_runs(const Frame& frame, const std::vector<BitRun>& runs) {
  const auto steps = static_cast<double>(step_count(runs));
  std::string path = fmt::format("M{:.6g} {:.6g}", frame.left, frame.y(width(runs[0].bits.forward)));
  std::int64_t done = 0;
  for (const BitRun& run : runs) {
    done += run.count;
    path += fmt::format("V{:.6g}H{:.6g}", frame.y(width(run.bits.forward)),
                        frame.left + frame.width * static_cast<double>(done) / steps);
  }
  return path;
}

std::string line_through_envelope(const Frame& frame, const std::vector<BitRun>& runs) {
  const std::vector<BitRange> columns = envelope(runs, static_cast<int>(frame.width));
  std::string path;
  for (std::size_t x = 0; x < columns.size(); ++x) {
    path += fmt::format("M{:.6g} {:.6g}V{:.6g}", frame.left + static_cast<double>(x) + 0.5,
                        frame.y(columns[x].low) + 0.5, frame.y(columns[x].high) - 0.5);
  }
  return path;
}

// Lines at each bit, or at every fourth where there are many.
std::string grid(const Frame& frame) {
  const int every = frame.bits.high - frame.bits.low > 12 ? 4 : 1;
  std::string svg;
  for (int bit = frame.bits.high; bit >= frame.bits.low; bit -= every) {
    svg += fmt::format("<path class=\"grid\" d=\"M{:.6g} {:.6g}h{:.6g}\"/>", frame.left, frame.y(bit),
                       frame.width);
    svg += fmt::format("<text class=\"tick\" x=\"{:.6g}\" y=\"{:.6g}\" text-anchor=\"end\">{}</text>\n",
                       frame.left - 7, frame.y(bit) + 4, bit);
  }
  return svg;
}

std::string step_axis(const Frame& frame, std::int64_t steps) {
  std::string svg;
  const std::int64_t ticks = steps % 4 == 0 ? 4 : steps % 2 == 0 ? 2 : 1;
  for (std::int64_t i = 0; i <= ticks; ++i) {
    svg += fmt::format("<text class=\"tick\" x=\"{:.6g}\" y=\"{:.6g}\" text-anchor=\"middle\">{}</text>\n",
                       frame.left + frame.width * static_cast<double>(i) / static_cast<double>(ticks),
                       frame.top + frame.height + 19, short_count(steps / ticks * i));
  }
  return svg;
}

std::string picture(const Frame& frame, const SchedulePicture& schedule) {
  std::string svg = fmt::format("<text class=\"title\" x=\"{:.6g}\" y=\"{:.6g}\">{}</text>\n", frame.left,
                                frame.top - 14, escaped(schedule.title));
  svg += fmt::format("<text class=\"tick\" x=\"{:.6g}\" y=\"{:.6g}\" text-anchor=\"end\">{}</text>\n",
                     frame.left + frame.width, frame.top - 14, escaped(schedule.subtitle));
  svg += grid(frame) + step_axis(frame, step_count(schedule.runs));
  const bool many = schedule.runs.size() > kMostRuns;
  return svg +
         fmt::format("<path class=\"bits\" d=\"{}\"/>\n", many ? line_through_envelope(frame, schedule.runs)
                                                               : line_through_runs(frame, schedule.runs));
}

BitRange common_bits(const std::vector<SchedulePicture>& pictures) {
  BitRange bits{kMostBits, kFewestBits};
  for (const SchedulePicture& schedule : pictures) {
    for (const BitRun& run : schedule.runs) {
      bits.low = std::min(bits.low, width(run.bits.forward));
      bits.high = std::max(bits.high, width(run.bits.forward));
    }
  }
  return bits.low == bits.high ? BitRange{bits.low - 1, bits.high + 1} : bits;
}

constexpr const char* kStyle =
    "<style>text{font-family:system-ui,sans-serif;fill:#1f2937}.title{font-size:15px;font-weight:600}"
    ".tick{font-size:12px;fill:#4b5563}.grid{stroke:#e5e7eb;stroke-width:1}"
    ".bits{fill:none;stroke:#0f6fb5;stroke-width:2;stroke-linejoin:round}</style>\n";

}  // namespace

std::string schedule_svg(const std::vector<SchedulePicture>& pictures) {
  const bool single = pictures.size() == 1;
  const std::size_t across = single ? 1 : 2;
  const std::size_t down = (pictures.size() + across - 1) / across;
  const double cell_width = single ? 800 : 450;
  const double cell_height = single ? 340 : 200;
  const double total_width = cell_width * static_cast<double>(across) + 20;
  const double total_height = cell_height * static_cast<double>(down) + 40;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.6g} {1:.6g}\" width=\"{0:.6g}\" "
      "height=\"{1:.6g}\" role=\"img\">\n{2}<rect width=\"{0:.6g}\" height=\"{1:.6g}\" rx=\"10\" "
      "fill=\"#ffffff\"/>\n",
      total_width, total_height, kStyle);
  const BitRange bits = common_bits(pictures);
  for (std::size_t i = 0; i < pictures.size(); ++i) {
    const std::size_t row = i / across;
    const std::size_t column = i % across;
    const double left = cell_width * static_cast<double>(column);
    const double top = cell_height * static_cast<double>(row);
    svg += picture({left + 60, top + 46, cell_width - 80, cell_height - 80, bits}, pictures[i]);
  }
  svg += fmt::format("<text class=\"tick\" x=\"{:.6g}\" y=\"{:.6g}\" text-anchor=\"middle\">step</text>\n",
                     total_width / 2, total_height - 14);
  svg += fmt::format(
      "<text class=\"tick\" transform=\"translate(20 {:.6g}) rotate(-90)\" "
      "text-anchor=\"middle\">bits of the forward pass</text>\n</svg>\n",
      total_height / 2);
  return svg;
}

}  // namespace lowtide
