#pragma once

#include <string>
#include <vector>

#include "lowtide/schedule/runs.h"

namespace lowtide {

struct SchedulePicture {
  std::string title;
  std::string subtitle;
  std::vector<BitRun> runs;
};

// A self-contained SVG document on a white ground, so that it reads on a light page and on a dark one: one
// picture, or several as small multiples on common axes, two to a row.
std::string schedule_svg(const std::vector<SchedulePicture>& pictures);

}  // namespace lowtide
