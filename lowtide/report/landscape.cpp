#include "lowtide/report/landscape.h"

#include <fmt/format.h>

#include <algorithm>

#include "lowtide/base/error.h"
#include "lowtide/train/run_folder.h"

namespace lowtide {
namespace {

bool is_row(const Json& row, std::size_t size) {
  // null: a loss that was not finite.
  return row.is_array() && row.size() == size &&
         std::all_of(row.begin(), row.end(), [](const Json& v) { return v.is_number() || v.is_null(); });
}

bool is_axis(const Json& axis) {
  if (!axis.is_array() || axis.size() < 2) return false;
  for (std::size_t i = 0; i < axis.size(); ++i) {
    if (!axis[i].is_number()) return false;
    if (i > 0 && axis[i].get<double>() <= axis[i - 1].get<double>()) return false;
  }
  return true;
}

}  // namespace

Json read_landscape(const std::filesystem::path& path) {
  Json landscape = read_run_file(path);
  const auto fail = [&](const char* what) {
    throw UserError(fmt::format("{}: {}", path.filename().string(), what));
  };
  for (const char* axis : {"x", "y"}) {
    if (!landscape.contains(axis) || !is_axis(landscape[axis]))
      fail("expected x and y, two or more rising numbers each");
  }
  const Json loss = landscape.value("loss", Json());
  if (!loss.is_array() || loss.size() != landscape["y"].size()) fail("expected a row of `loss` for each y");
  for (const Json& row : loss) {
    if (!is_row(row, landscape["x"].size())) fail("expected a loss for each x in every row");
  }
  return landscape;
}

}  // namespace lowtide
