#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lowtide/base/json.h"
#include "lowtide/schedule/plot.h"

namespace lowtide {

// The loss on a square grid around trained weights, which lie in its middle.
struct Landscape {
  std::vector<double> axis;               // positions along either direction, rising, 0 in the middle
  std::vector<std::vector<double>> loss;  // a row for each y, a loss for each x; may be infinite or NaN
};

// `grid` positions from -span to span, each the negative of another. UserError unless the grid is odd, so
// that it holds the weights themselves, and the span above 0.
std::vector<double> landscape_axis(int grid, double span);

// Row by row, from the lowest y; `row_done` hears how many rows there are now.
Landscape measure_landscape(
    const std::vector<double>& axis, const std::function<double(double x, double y)>& loss,
    const std::function<void(std::size_t)>& row_done = [](std::size_t) {});

struct LandscapeFigures {
  double centre = 0;
  double lowest = 0, highest = 0;  // of those that are finite; ∞ and -∞ where none is
  // Keskar et al. 2017, equation 4, in this plane: 100 (the highest loss within `radius` of the weights - the
  // centre) / (1 + the centre). Infinite where a loss there is not finite.
  double sharpness = 0;
  double radius = 0;  // a quarter of the span, at least one step of the grid
};
LandscapeFigures figures_of(const Landscape& landscape);

// x, y and loss, as docs/report.md has them.
Json to_json(const Landscape& landscape);

// Shades by the logarithm of the loss, from `lowest` to `highest`, which several pictures may have in
// common; two characters a position, at most 78 columns.
std::string shade_picture(const Landscape& landscape, double lowest, double highest, Charset charset);

}  // namespace lowtide
