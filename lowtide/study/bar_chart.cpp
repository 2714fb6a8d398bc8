#include "lowtide/study/bar_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lowtide {

std::string bar_chart(const std::vector<Bar>& bars, double threshold, Charset charset) {
  constexpr int kWidth = 40;
  const bool utf8 = charset == Charset::kUtf8;
  double longest = threshold;
  std::size_t label_width = 0;
  for (const Bar& bar : bars) {
    longest = std::max(longest, bar.value);
    label_width = std::max(label_width, bar.label.size());
  }
  const auto cells = [&](double value) {
    return longest > 0 ? static_cast<int>(std::lround(std::max(0.0, value) / longest * kWidth)) : 0;
  };
  const int mark = threshold > 0 ? std::min(cells(threshold), kWidth - 1) : -1;
  std::string chart;
  for (const Bar& bar : bars) {
    chart += fmt::format("{:>{}} {}", bar.label, label_width, utf8 ? "│" : "|");
    for (int cell = 0; cell < kWidth; ++cell) {
      const bool full = cell < cells(bar.value);
      chart += cell == mark ? (utf8 ? "┊" : ":") : full ? (utf8 ? "█" : "#") : " ";
    }
    chart += fmt::format(" {}\n", bar.text);
  }
  return chart;
}

}  // namespace lowtide
