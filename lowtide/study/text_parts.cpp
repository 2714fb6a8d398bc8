#include "lowtide/study/text_parts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace lowtide {
namespace {

// What so many seeds can tell, in plain words.
std::string resolution_note(const Analysis& analysis) {
  if (!analysis.resolution) return "";
  const auto& [seeds, difference] = *analysis.resolution;
  if (seeds < kFewestSeeds) {
    return fmt::format(
        "{} shared seed{} tell{} no difference from noise{}: no p is given. It takes {}, better five.\n\n",
        seeds, seeds == 1 ? "" : "s", seeds == 1 ? "s" : "",
        seeds == 2 ? " (a t interval with one degree of freedom is 12.7 standard errors to either side)" : "",
        kFewestSeeds);
  }
  if (!difference) return "";
  return fmt::format(
      "{} seeds cannot tell a difference below {}{} from noise: that is t of {} degrees of freedom times the "
      "standard error, pooled over all rows.\n\n",
      seeds, metric_number(*analysis.metric, *difference), analysis.metric->is_fraction ? " points" : "",
      seeds - 1);
}

}  // namespace

std::string interval_text(const Metric& metric, const Interval& interval) {
  return fmt::format("[{}, {}]", metric_difference(metric, interval.low),
                     metric_difference(metric, interval.high));
}

std::string unit_of(const Metric& metric) { return metric.is_fraction ? " %" : ""; }

std::string mean_text(const Metric& metric, const Setting& setting) {
  const std::string mean = metric_number(metric, setting.mean);
  return setting.deviation ? fmt::format("{} ± {}", mean, metric_number(metric, *setting.deviation)) : mean;
}

std::string judged_at_text(const Setting& setting, const char* between) {
  std::vector<std::string> all;
  for (const int bits : setting.judged_at) all.push_back(bits == 0 ? "fp32" : fmt::to_string(bits));
  return fmt::format("{}", fmt::join(all, between));
}

std::string contrast_cells(const Metric& metric, const Setting& setting) {
  if (!setting.contrast) return " | | ";
  const Contrast& contrast = *setting.contrast;
  return fmt::format("{} | {} | {}", metric_difference(metric, contrast.difference),
                     contrast.interval ? interval_text(metric, *contrast.interval) : "",
                     contrast.p ? p_text(*contrast.p) : "");
}

std::string test_note(const Analysis& analysis) {
  if (analysis.reference.empty()) return "";
  const bool tested = std::any_of(analysis.settings.begin(), analysis.settings.end(),
                                  [](const Setting& s) { return s.contrast && !s.contrast->test.empty(); });
  const bool budgets = analysis.study.kind == Study::kBudget;
  const std::string of_studies =
      analysis.studies > 1 ? fmt::format(" of the {} studies", analysis.studies) : "";
  return fmt::format("Difference: from {}{}{}{}\n\n", analysis.reference,
                     budgets ? " at the same budget" : "", analysis.metric->is_fraction ? ", in points" : "",
                     tested ? fmt::format(", with its 95 % interval and p by a t test, paired over the seeds "
                                          "that both have (Welch's where they share fewer than two); p "
                                          "adjusted by Holm for all rows{}{}.",
                                          of_studies,
                                          budgets ? ", but for a loop's bits alone, which are adjusted by "
                                                    "themselves"
                                                  : "")
                            : ".") +
         resolution_note(analysis);
}

}  // namespace lowtide
