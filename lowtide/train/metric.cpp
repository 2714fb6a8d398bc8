#include "lowtide/train/metric.h"

#include <fmt/format.h>

#include <array>

#include "lowtide/base/error.h"
#include "lowtide/schedule/text.h"

namespace lowtide {
namespace {

constexpr std::array kMetrics{
    Metric{"accuracy", true, true, 2},
    Metric{"mAP", true, true, 2},
    Metric{"perplexity", false, false, 2},
    Metric{"loss", false, false, 4},
};

}  // namespace

const Metric& find_metric(std::string_view name) {
  for (const Metric& metric : kMetrics) {
    if (equal_ignoring_case(metric.name, name)) return metric;
  }
  throw UserError(fmt::format("unknown metric {}; expected accuracy, mAP, perplexity or loss", quoted(name)));
}

std::string metric_text(const Metric& metric, double value) {
  return metric_number(metric, value) + (metric.is_fraction ? " %" : "");
}

std::string metric_number(const Metric& metric, double value) {
  return fmt::format("{:.{}f}", metric.is_fraction ? 100 * value : value, metric.decimals);
}

std::string metric_difference(const Metric& metric, double value) {
  return fmt::format("{:+.{}f}", metric.is_fraction ? 100 * value : value, metric.decimals);
}

}  // namespace lowtide
