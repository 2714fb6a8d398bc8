#include "lowtide/study/landscape.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

#include "lowtide/base/error.h"

namespace lowtide {
namespace {

constexpr int kMostPositions = 1001;

double centre_of(const Landscape& landscape) {
  const std::size_t middle = landscape.axis.size() / 2;
  return landscape.loss[middle][middle];
}

double highest_within(const Landscape& landscape, double radius) {
  double highest = centre_of(landscape);
  for (std::size_t i = 0; i < landscape.axis.size(); ++i) {
    for (std::size_t j = 0; j < landscape.axis.size(); ++j) {
      if (std::hypot(landscape.axis[i], landscape.axis[j]) > radius) continue;
      const double loss = landscape.loss[i][j];
      highest = std::isfinite(loss) ? std::max(highest, loss) : std::numeric_limits<double>::infinity();
    }
  }
  return highest;
}

// From 0 at the lowest to 1 at the highest. Losses rise by orders of magnitude towards the edges.
double height(double loss, double lowest, double highest) {
  const bool even = lowest <= 0;
  const double from = even ? lowest : std::log(lowest), to = even ? highest : std::log(highest);
  return to > from ? std::clamp(((even ? loss : std::log(loss)) - from) / (to - from), 0.0, 1.0) : 0.0;
}

}  // namespace

std::vector<double> landscape_axis(int grid, double span) {
  if (grid < 3 || grid > kMostPositions || grid % 2 == 0) {
    throw UserError(fmt::format(
        "grid is {}; expected an odd number from 3 to {}, so that the weights themselves are on it", grid,
        kMostPositions));
  }
  if (!(span > 0) || !std::isfinite(span))
    throw UserError(fmt::format("span is {}; expected a number above 0", span));
  const int half = grid / 2;
  std::vector<double> axis;
  for (int i = -half; i <= half; ++i) axis.push_back(span * i / half);
  return axis;
}

Landscape measure_landscape(const std::vector<double>& axis,
                            const std::function<double(double x, double y)>& loss,
                            const std::function<void(std::size_t)>& row_done) {
  Landscape landscape{axis, {}};
  for (const double y : axis) {
    std::vector<double> row;
    row.reserve(axis.size());
    for (const double x : axis) row.push_back(loss(x, y));
    landscape.loss.push_back(std::move(row));
    row_done(landscape.loss.size());
  }
  return landscape;
}

LandscapeFigures figures_of(const Landscape& landscape) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double centre = centre_of(landscape), step = landscape.axis[landscape.axis.size() / 2 + 1];
  const double radius = std::max(landscape.axis.back() / 4, step);
  LandscapeFigures figures{.centre = centre, .lowest = kInfinity, .highest = -kInfinity, .radius = radius};
  for (const std::vector<double>& row : landscape.loss) {
    for (const double loss : row) {
      if (!std::isfinite(loss)) continue;
      figures.lowest = std::min(figures.lowest, loss);
      figures.highest = std::max(figures.highest, loss);
    }
  }
  figures.sharpness = 100 * (highest_within(landscape, radius) - centre) / (1 + centre);
  return figures;
}

Json to_json(const Landscape& landscape) {
  return {{"x", landscape.axis}, {"y", landscape.axis}, {"loss", landscape.loss}};
}

std::string shade_picture(const Landscape& landscape, double lowest, double highest, Charset charset) {
  static constexpr std::array<std::string_view, 5> kBlocks{" ", "░", "▒", "▓", "█"};
  static constexpr std::string_view kCharacters = " .:-=+*#%@";
  constexpr std::size_t kMostColumns = 39;  // of two characters
  const bool utf8 = charset == Charset::kUtf8;
  const std::size_t levels = utf8 ? kBlocks.size() : kCharacters.size();
  const std::size_t middle = landscape.axis.size() / 2;
  const std::size_t every = (landscape.axis.size() + kMostColumns - 1) / kMostColumns;
  const std::size_t first = middle % every;  // so that the middle is shown
  std::string picture;
  for (std::size_t up = 0; up < landscape.axis.size(); ++up) {
    const std::size_t i = landscape.axis.size() - 1 - up;
    if (i % every != first) continue;
    for (std::size_t j = first; j < landscape.axis.size(); j += every) {
      const double loss = landscape.loss[i][j];
      const auto level = std::isfinite(loss)
                             ? static_cast<std::size_t>(std::lround(height(loss, lowest, highest) *
                                                                    static_cast<double>(levels - 1)))
                             : levels - 1;
      const std::string_view shade = utf8 ? kBlocks.at(level) : kCharacters.substr(level, 1);
      picture += i == middle && j == middle ? fmt::format("+{}", shade) : fmt::format("{}{}", shade, shade);
    }
    picture += '\n';
  }
  return picture;
}

}  // namespace lowtide
