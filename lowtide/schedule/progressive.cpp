#include "lowtide/schedule/progressive.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "lowtide/base/error.h"
#include "lowtide/base/json_reason.h"

namespace lowtide {

ProgressiveBits::ProgressiveBits(const ScheduleSpec& spec) : plateau_(spec.plateau) {
  const auto last = static_cast<double>(spec.levels.size() - 1);
  for (std::size_t i = 0; i < spec.levels.size(); ++i) {
    // A range of gradient bits is climbed in as many equal steps as the list of forward bits has.
    const double grad = spec.grad.low + (spec.grad.high - spec.grad.low) * static_cast<double>(i) / last;
    levels_.push_back({spec.levels[i], round_half_even(grad)});
  }
}

Bits ProgressiveBits::at(std::int64_t step) const {
  const auto& climbs = progress_.climbs;
  return levels_[static_cast<std::size_t>(std::upper_bound(climbs.begin(), climbs.end(), step) -
                                          climbs.begin())];
}

std::int64_t ProgressiveBits::same_until(std::int64_t step) const {
  const auto& climbs = progress_.climbs;
  const auto next = std::upper_bound(climbs.begin(), climbs.end(), step);
  return next == climbs.end() ? std::numeric_limits<std::int64_t>::max() : *next;
}

void ProgressiveBits::observe(std::int64_t step, double loss) {
  if (progress_.climbs.size() + 1 == levels_.size()) return;
  // A loss that is no number says nothing about a plateau, and would poison the mean.
  if (!std::isfinite(loss)) return;
  progress_.sum += loss;
  if (++progress_.count < plateau_.window) return;
  const double mean = progress_.sum / static_cast<double>(progress_.count);
  progress_.sum = 0.0;
  progress_.count = 0;
  if (!has_stopped_falling(mean)) return;
  progress_.climbs.push_back(step + 1);
  progress_.best.reset();
  progress_.stale = 0;
}

bool ProgressiveBits::has_stopped_falling(double mean) {
  Progress& p = progress_;
  // |best| rather than best: a likelihood may be negative, and less is better there too.
  const bool clearly_better = !p.best || mean < *p.best - plateau_.threshold * std::abs(*p.best);
  p.best = p.best ? std::min(*p.best, mean) : mean;
  p.stale = clearly_better ? 0 : p.stale + 1;
  return p.stale >= plateau_.patience;
}

Json ProgressiveBits::state() const {
  const Progress& p = progress_;
  return {{"climbs", p.climbs},
          {"sum", p.sum},
          {"count", p.count},
          {"best", p.best ? Json(*p.best) : Json()},
          {"stale", p.stale}};
}

void ProgressiveBits::restore(const Json& state) {
  Progress progress;
  try {
    state.at("climbs").get_to(progress.climbs);
    state.at("sum").get_to(progress.sum);
    state.at("count").get_to(progress.count);
    if (!state.at("best").is_null()) progress.best = state.at("best").get<double>();
    state.at("stale").get_to(progress.stale);
  } catch (const Json::exception& error) {
    throw UserError(fmt::format("state of a progressive schedule: damaged ({})", json_reason(error)));
  }
  if (progress.climbs.size() >= levels_.size() ||
      !std::is_sorted(progress.climbs.begin(), progress.climbs.end()) || progress.count < 0 ||
      progress.count >= plateau_.window || progress.stale < 0) {
    throw UserError(
        "state of a progressive schedule: not of this schedule; resume with the one it was saved by");
  }
  progress_ = std::move(progress);
  // Read as whole numbers, 1.5 is 1.
  if (this->state() != state)
    throw UserError("state of a progressive schedule: damaged (counts that are not whole)");
}

}  // namespace lowtide
