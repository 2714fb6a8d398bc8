#pragma once

#include <string>
#include <string_view>

namespace lowtide {

// What is known of a metric that a task is judged by.
struct Metric {
  std::string_view name;
  bool higher_is_better;
  bool is_fraction;  // from 0 to 1, and shown to people as a percentage
  int decimals;      // of what is shown
};

// Case does not matter. UserError for one that is not known: guessing its direction could turn a ranking
// round.
const Metric& find_metric(std::string_view name);

// For people: "89.83 %", "85.59"; and without the unit, for a column or a sentence that names it.
std::string metric_text(const Metric& metric, double value);
std::string metric_number(const Metric& metric, double value);
// A difference, with its sign: "+0.45", "-1.20"; of percentages in points.
std::string metric_difference(const Metric& metric, double value);

}  // namespace lowtide
