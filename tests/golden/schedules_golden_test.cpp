#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "lowtide/cost/summary.h"
#include "tests/golden/golden_dir.h"

namespace lowtide {
namespace {

struct Row {
  ScheduleSpec spec;
  std::int64_t steps = 0;
  double relative_cost = 0.0;
  std::string runs;  // 3x1639 4x1314 …
};

Row parse_row(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> cells;
  for (std::string cell; std::getline(stream, cell, ',');) cells.push_back(cell);
  if (cells.size() != 7) throw std::runtime_error("not a row of schedules.csv: " + line);
  Row row;
  row.steps = std::stoll(cells[1]);
  row.spec = parse_schedule(
      fmt::format("{} {}:{} n={} grad=8", cells[0], cells[3], cells[4], row.steps / std::stoll(cells[2])));
  row.relative_cost = std::stod(cells[5]);
  row.runs = cells[6];
  return row;
}

std::vector<Row> rows() {
  std::ifstream file(golden_dir() / "schedules.csv");
  std::vector<Row> result;
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    if (!line.empty()) result.push_back(parse_row(line));
  }
  if (result.empty()) throw std::runtime_error("schedules.csv has no rows");
  return result;
}

std::string print_runs(const std::vector<BitRun>& runs) {
  std::string text;
  for (const BitRun& run : runs) {
    text += fmt::format("{}{}x{}", text.empty() ? "" : " ", run.bits.forward, run.count);
  }
  return text;
}

TEST(GoldenSchedules, RunsAreThoseRecorded) {
  for (const Row& row : rows()) {
    EXPECT_EQ(print_runs(summarise(row.spec, row.steps).runs), row.runs)
        << to_string(row.spec) << ", " << row.steps;
  }
}

// The recorded cost has ten decimals: half of the last is 5e-11.
TEST(GoldenSchedules, RelativeCostIsThatRecorded) {
  for (const Row& row : rows()) {
    EXPECT_NEAR(summarise(row.spec, row.steps).relative_cost, row.relative_cost, 1e-9) << to_string(row.spec);
  }
}

}  // namespace
}  // namespace lowtide
