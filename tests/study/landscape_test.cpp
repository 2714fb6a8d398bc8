#include "lowtide/study/landscape.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lowtide/io/file.h"
#include "lowtide/report/landscape.h"
#include "tests/io/scratch.h"

namespace lowtide {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// 1 + x² + 4 y²: what each position's loss must be can be seen.
double bowl(double x, double y) { return 1 + x * x + 4 * y * y; }

TEST(Landscape, AxisIsSymmetricAroundTheWeights) {
  EXPECT_EQ(landscape_axis(5, 1), (std::vector<double>{-1, -0.5, 0, 0.5, 1}));
  const std::vector<double> axis = landscape_axis(21, 0.3);
  ASSERT_EQ(axis.size(), 21u);
  EXPECT_EQ(axis[10], 0.0);
  EXPECT_FALSE(std::signbit(axis[10]));
  for (std::size_t i = 0; i < axis.size(); ++i) EXPECT_EQ(axis[i], -axis[20 - i]);
}

TEST(Landscape, ImpossibleGridsAreRefused) {
  EXPECT_TRUE(contains(user_error([] { landscape_axis(20, 1); }), "grid is 20; expected an odd number"));
  for (const int grid : {-3, 0, 1, 1003}) {
    EXPECT_TRUE(
        contains(user_error([&] { landscape_axis(grid, 1); }), "expected an odd number from 3 to 1001"));
  }
  for (const double span : {0.0, -1.0, kNaN, kInfinity}) {
    EXPECT_TRUE(contains(user_error([&] { landscape_axis(5, span); }), "span is", "above 0"));
  }
}

TEST(Landscape, HasARowForEachYAndALossForEachX) {
  std::vector<std::size_t> rows;
  const Landscape landscape =
      measure_landscape(landscape_axis(5, 2), bowl, [&](std::size_t row) { rows.push_back(row); });
  EXPECT_EQ(rows, (std::vector<std::size_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(landscape.loss[0], (std::vector<double>{21, 18, 17, 18, 21}));
  EXPECT_EQ(landscape.loss[2], (std::vector<double>{5, 2, 1, 2, 5}));
}

TEST(Landscape, FiguresOfABowl) {
  const LandscapeFigures figures = figures_of(measure_landscape(landscape_axis(9, 2), bowl));
  EXPECT_EQ(figures.centre, 1);
  EXPECT_EQ(figures.lowest, 1);
  EXPECT_EQ(figures.highest, 21);
  EXPECT_EQ(figures.radius, 0.5);
  // Within 0.5 lie 0, ±0.5 along either direction: the highest is 1 + 4 · 0.25.
  EXPECT_DOUBLE_EQ(figures.sharpness, 100 * 1.0 / 2);
  // On a coarse grid the next positions, though they are further away.
  const LandscapeFigures coarse = figures_of(measure_landscape(landscape_axis(3, 2), bowl));
  EXPECT_EQ(coarse.radius, 2);
  EXPECT_DOUBLE_EQ(coarse.sharpness, 100 * 16.0 / 2);
}

TEST(Landscape, WhatIsNotFiniteIsNoHeightButSharp) {
  Landscape landscape = measure_landscape(landscape_axis(9, 2), bowl);
  landscape.loss[0][0] = kInfinity;
  landscape.loss[8][8] = kNaN;
  EXPECT_EQ(figures_of(landscape).highest, 21);
  EXPECT_DOUBLE_EQ(figures_of(landscape).sharpness, 50);
  landscape.loss[4][5] = kNaN;  // beside the weights
  EXPECT_EQ(figures_of(landscape).sharpness, kInfinity);
  landscape.loss[4][4] = kNaN;  // the weights themselves
  EXPECT_EQ(figures_of(landscape).highest, 21);
  const Landscape nowhere = measure_landscape(landscape_axis(3, 1), [](double, double) { return kNaN; });
  const LandscapeFigures figures = figures_of(nowhere);
  EXPECT_EQ(figures.lowest, kInfinity);
  EXPECT_EQ(shade_picture(nowhere, figures.lowest, figures.highest, Charset::kAscii),
            "@@@@@@\n@@+@@@\n@@@@@@\n");
}

TEST(Landscape, TheReportReadsWhatIsWritten) {
  Landscape landscape = measure_landscape(landscape_axis(3, 1), bowl);
  landscape.loss[0][2] = kInfinity;
  const ScratchFolder folder;
  write_atomically(landscape_path(folder.path()), to_json(landscape).dump());
  const Json read = Json::parse(read_text_file(landscape_path(folder.path())));
  EXPECT_EQ(read.at("x"), (Json{-1.0, 0.0, 1.0}));
  EXPECT_EQ(read.at("y"), read.at("x"));
  EXPECT_EQ(read.at("loss"), (Json{{6.0, 5.0, nullptr}, {2.0, 1.0, 2.0}, {6.0, 5.0, 6.0}}));
}

TEST(Landscape, PictureRisesFromTheWeights) {
  const Landscape landscape = measure_landscape(landscape_axis(3, 1), bowl);
  // Levels by ln(loss) / ln 6 of nine: ln 2 → 3.5, rounded to 3 or 4; ln 5 → 8.1.
  const std::string picture = shade_picture(landscape, 1, 6, Charset::kAscii);
  EXPECT_EQ(picture, "@@%%@@\n--+ --\n@@%%@@\n");
  EXPECT_TRUE(contains(shade_picture(landscape, 1, 6, Charset::kUtf8), "██", "+ "));
}

TEST(Landscape, PictureOfAWideGridFitsATerminal) {
  for (const int grid : {39, 41, 101, 1001}) {
    const std::string picture =
        shade_picture(measure_landscape(landscape_axis(grid, 1), bowl), 1, 6, Charset::kAscii);
    EXPECT_LE(picture.find('\n'), 78u) << grid;
    EXPECT_EQ(std::count(picture.begin(), picture.end(), '+') % 2, 1) << grid << ": the weights are shown";
  }
}

TEST(Landscape, PictureOfAPlain) {
  const Landscape flat = measure_landscape(landscape_axis(3, 1), [](double, double) { return 2.0; });
  EXPECT_EQ(shade_picture(flat, 2, 2, Charset::kAscii), "      \n  +   \n      \n");
  const Landscape below = measure_landscape(landscape_axis(3, 1), [](double x, double) { return x; });
  // No logarithm of what is below 0: half way up is level 4.5 of nine.
  EXPECT_EQ(shade_picture(below, -1, 1, Charset::kAscii), "  ++@@\n  ++@@\n  ++@@\n");
}

}  // namespace
}  // namespace lowtide
