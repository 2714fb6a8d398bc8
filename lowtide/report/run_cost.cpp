#include "lowtide/report/run_cost.h"

#include <fmt/format.h>

#include <algorithm>

#include "lowtide/base/error.h"

namespace lowtide {

double RunCost::relative(CostCount count) const {
  return count == CostCount::kActual ? relative_actual : relative_paper;
}

double RunCost::gbitops(CostCount count) const {
  return count == CostCount::kActual ? gbitops_actual : gbitops_paper;
}

double RunCost::total(const CostMeasure& measure) const {
  return measure.axis == CostAxis::kTime ? seconds : gbitops(measure.count);
}

CostCount parse_count(std::string_view text) {
  if (text == "actual") return CostCount::kActual;
  if (text == "paper") return CostCount::kPaper;
  throw UserError(fmt::format("count is '{}'; expected actual or paper", text));
}

CostAxis parse_axis(std::string_view text) {
  if (text == "bitops") return CostAxis::kBitOperations;
  if (text == "time") return CostAxis::kTime;
  throw UserError(fmt::format("axis is '{}'; expected bitops or time", text));
}

std::string to_string(CostCount count) { return count == CostCount::kActual ? "actual" : "paper"; }

std::string to_string(CostAxis axis) { return axis == CostAxis::kTime ? "time" : "bitops"; }

std::string measure_name(const CostMeasure& measure) {
  if (measure.axis == CostAxis::kTime) return "time";
  return fmt::format("bit operations ({})", to_string(measure.count));
}

std::string count_meaning(CostCount count) {
  return count == CostCount::kActual ? "each layer at the bits it ran at"
                                     : "every layer at the scheduled bits";
}

std::vector<bool> pareto_front(const std::vector<CostAndValue>& points, const Metric& metric) {
  const auto better = [&](double a, double b) { return metric.higher_is_better ? a > b : a < b; };
  std::vector<bool> front;
  for (const CostAndValue& point : points) {
    front.push_back(std::none_of(points.begin(), points.end(), [&](const CostAndValue& other) {
      return (other.cost < point.cost && !better(point.value, other.value)) ||
             (other.cost <= point.cost && better(other.value, point.value));
    }));
  }
  return front;
}

}  // namespace lowtide
