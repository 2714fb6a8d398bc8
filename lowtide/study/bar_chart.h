#pragma once

#include <string>
#include <vector>

#include "lowtide/schedule/plot.h"

namespace lowtide {

struct Bar {
  std::string label;
  double value = 0;  // drawn from 0; nothing for one below
  std::string text;  // after the bar
};

// Bars side by side, the longest 40 characters wide; with a mark at `threshold`, if it is above 0.
std::string bar_chart(const std::vector<Bar>& bars, double threshold, Charset charset);

}  // namespace lowtide
