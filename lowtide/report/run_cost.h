#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lowtide/train/metric.h"

namespace lowtide {

// Which bit operations count: each layer at the bits it ran at, or, as the papers have it, every layer at the
// scheduled bits.
enum class CostCount { kActual, kPaper };
enum class CostAxis { kBitOperations, kTime };

// What runs are compared by.
struct CostMeasure {
  CostCount count = CostCount::kActual;
  CostAxis axis = CostAxis::kBitOperations;
};

// What a run cost, or the mean of several.
struct RunCost {
  double relative_paper = 0, relative_actual = 0;  // of the same run in fp32
  double gbitops_paper = 0, gbitops_actual = 0;    // of the whole run
  double seconds = 0;

  double relative(CostCount count) const;
  double gbitops(CostCount count) const;
  double total(const CostMeasure& measure) const;  // GBitOps, or seconds
};

// As on the command line: UserError for another word.
CostCount parse_count(std::string_view text);
CostAxis parse_axis(std::string_view text);
std::string to_string(CostCount count);  // "actual", "paper"
std::string to_string(CostAxis axis);    // "bitops", "time"

// For people: "bit operations (actual)", "time".
std::string measure_name(const CostMeasure& measure);
// "each layer at the bits it ran at"
std::string count_meaning(CostCount count);

struct CostAndValue {
  double cost = 0, value = 0;
};
// Which are on the Pareto front: no other is at least as cheap and as good, and better in one.
std::vector<bool> pareto_front(const std::vector<CostAndValue>& points, const Metric& metric);

}  // namespace lowtide
