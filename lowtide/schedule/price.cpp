#include "lowtide/schedule/price.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "lowtide/base/error.h"
#include "lowtide/base/json_reason.h"

namespace lowtide {
namespace {

// A bit is worth some four times as much as the next. So that a tenth too little left lowers the bits by one: 1.1^16 = 4.6.
double budget_pressure(double ratio) {
  for (int i = 0; i < 4; ++i) ratio *= ratio;
  return ratio;
}

bool is_finite(const ProbeLosses& losses) {
  return std::isfinite(losses.coarse) && std::isfinite(losses.fine);
}

Json loss_json(double loss) { return std::isfinite(loss) ? Json(loss) : Json(); }

double loss_from(const Json& json) {
  return json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.get<double>();
}

// Of some neighbouring steps.
Spending part_of(const Spending& spending, std::int64_t begin, std::int64_t end) {
  return {.wanted = {spending.wanted.begin() + begin, spending.wanted.begin() + end},
          .gradient = {spending.gradient.begin() + begin, spending.gradient.begin() + end},
          .range = spending.range};
}

}  // namespace

std::int64_t PriceIntervals::probe_cost(int level) const {
  const std::int64_t low = coarse(level);
  return low * low + (low + 1) * (low + 1);
}

PriceBits::PriceBits(const PriceIntervals& intervals, Spending spending, std::int64_t budget)
    : intervals_(intervals), spending_(std::move(spending)), budget_(budget) {
  LOWTIDE_CHECK(intervals_.probes() >= 2 && budget >= intervals_.least() && budget <= intervals_.most(),
                "a budget or intervals that were not checked");
  const std::int64_t for_steps = budget - intervals_.probes() * intervals_.probe_cost(intervals_.bits.high);
  plan_ = spend(spending_, std::clamp(for_steps, spending_.cost_at(intervals_.bits.low),
                                      spending_.cost_at(intervals_.bits.high)));
  planned_from_.resize(static_cast<std::size_t>(intervals_.count()) + 1);
  for (std::int64_t i = intervals_.last(); i >= 0; --i) {
    const auto at = static_cast<std::size_t>(i);
    planned_from_[at] = planned_from_[at + 1];
    for (std::int64_t step = intervals_.begin(i); step < intervals_.end(i); ++step)
      planned_from_[at] += intervals_.cost(plan_[static_cast<std::size_t>(step)]);
  }
  loop_.left = budget_;
  decide();
}

Bits PriceBits::at(std::int64_t step) const {
  step = std::clamp<std::int64_t>(step, 0, intervals_.steps - 1);
  const std::int64_t interval = intervals_.of_step(step);
  if (interval < static_cast<std::int64_t>(loop_.levels.size()))
    return {loop_.levels[static_cast<std::size_t>(interval)], intervals_.gradient};
  const bool is_decided = interval == intervals_.last() && !loop_.last_bits.empty();
  return {is_decided ? loop_.last_bits[static_cast<std::size_t>(step - intervals_.begin(interval))]
                     : plan_[static_cast<std::size_t>(step)],
          intervals_.gradient};
}

std::int64_t PriceBits::same_until(std::int64_t step) const {
  std::int64_t end = step + 1;
  while (end < intervals_.steps && at(end) == at(step)) ++end;
  return end < intervals_.steps ? end : std::numeric_limits<std::int64_t>::max();
}

std::optional<Probe> PriceBits::probe_after(std::int64_t step) const {
  const auto interval = static_cast<std::int64_t>(loop_.heard.size());
  if (interval == intervals_.probes() || step + 1 != intervals_.end(interval)) return std::nullopt;
  const int coarse = intervals_.coarse(loop_.levels.back());
  return Probe{{coarse, intervals_.gradient}, {coarse + 1, intervals_.gradient}};
}

void PriceBits::observe_probe(const ProbeLosses& losses) {
  LOWTIDE_CHECK(probes_left() > 0, "a probe that was not asked for");
  hear(losses);
}

void PriceBits::hear(const ProbeLosses& losses) {
  loop_.left -= intervals_.probe_cost(loop_.levels.back());
  learn(losses);
  loop_.heard.push_back(losses);
  decide();
}

// The last four probes have two thirds of the weight.
void PriceBits::Ratio::add(double value, double unit) {
  constexpr double kMemory = 0.75;
  sum = kMemory * sum + value;
  by = kMemory * by + unit;
}

// A loss that is no number says nothing.
void PriceBits::learn(const ProbeLosses& losses) {
  if (!is_finite(losses)) return;
  const int level = loop_.levels.back();
  loop_.damage.add(losses.coarse - losses.fine, std::ldexp(1.0, -2 * intervals_.coarse(level)));
  if (const auto fall = fall_to(losses))
    loop_.progress.add(*fall, static_cast<double>(intervals_.every * intervals_.cost(level)));
  if (loop_.price || loop_.progress.value() <= 0 || loop_.damage.value() <= 0) return;
  // At this price the level is right, and as far from the one below as from the one above.
  loop_.price = std::sqrt(worth(level - 1) * worth(level)) / loop_.progress.value();
}

// How far the loss fell since the probe before, at bits that both probes have.
std::optional<double> PriceBits::fall_to(const ProbeLosses& losses) const {
  if (loop_.heard.empty() || !is_finite(loop_.heard.back())) return std::nullopt;
  const ProbeLosses& before = loop_.heard.back();
  const int was = intervals_.coarse(loop_.levels[loop_.levels.size() - 2]),
            is = intervals_.coarse(loop_.levels.back());
  if (is == was) return before.coarse - losses.coarse;
  if (is == was + 1) return before.fine - losses.coarse;
  if (is == was - 1) return before.coarse - losses.fine;
  return std::nullopt;
}

// The level of the next interval; with the last level also the rest, which no probe comes before.
void PriceBits::decide() {
  const auto interval = static_cast<std::int64_t>(loop_.levels.size());
  const int level =
      affordable_level(interval, loop_.price ? wanted_level(interval) : planned_level(interval));
  loop_.levels.push_back(static_cast<std::uint8_t>(level));
  loop_.left -= intervals_.length(interval) * intervals_.cost(level);
  const std::int64_t last = intervals_.last();
  if (interval + 1 == last)
    loop_.last_bits = spend(part_of(spending_, intervals_.begin(last), intervals_.end(last)), loop_.left);
}

// Whose cost is nearest to the plan's.
int PriceBits::planned_level(std::int64_t interval) const {
  const auto at = static_cast<std::size_t>(interval);
  const std::int64_t planned = planned_from_[at] - planned_from_[at + 1],
                     length = intervals_.length(interval);
  int level = intervals_.bits.low;
  while (level < intervals_.bits.high &&
         length * (intervals_.cost(level) + intervals_.cost(level + 1)) <= 2 * planned)
    ++level;
  return level;
}

// What a bit operation takes off the loss that raises the level by a bit for an interval.
double PriceBits::worth(int level) const {
  const std::int64_t cost = intervals_.every * (intervals_.cost(level + 1) - intervals_.cost(level));
  return std::ldexp(loop_.damage.value(), -2 * level) / static_cast<double>(cost);
}

int PriceBits::wanted_level(std::int64_t interval) const {
  const std::int64_t planned = planned_from_[static_cast<std::size_t>(interval)];
  const std::int64_t left = loop_.left - probes_left() * intervals_.probe_cost(intervals_.bits.low);
  const double pressure = budget_pressure(static_cast<double>(planned) / static_cast<double>(left));
  const int now = loop_.levels.back();
  const int lowest = std::max(intervals_.bits.low, now - 1),
            highest = std::min(intervals_.bits.high, now + 1);
  int level = lowest;
  while (level < highest && worth(level) > *loop_.price * pressure * loop_.progress.value()) ++level;
  return level;
}

// So that what is left can be spent on the later steps, neither too little nor too much. There is such a level: those
// steps are as many as the interval's, or more.
int PriceBits::affordable_level(std::int64_t interval, int wanted) const {
  const BitRange& bits = intervals_.bits;
  const std::int64_t later = intervals_.steps - intervals_.end(interval), probes = probes_left();
  const auto left_after = [&](int level) {
    return loop_.left - intervals_.length(interval) * intervals_.cost(level) -
           probes * intervals_.probe_cost(bits.low);
  };
  const auto leaves_enough = [&](int level) {
    const std::int64_t dearer =
        probes > 0 ? intervals_.probe_cost(level) - intervals_.probe_cost(bits.low) : 0;
    return left_after(level) - dearer >= later * intervals_.cost(bits.low);
  };
  int level = wanted;
  while (level > bits.low && !leaves_enough(level)) --level;
  while (level < bits.high && left_after(level) > later * intervals_.cost(bits.high)) ++level;
  LOWTIDE_CHECK(leaves_enough(level), "a budget that no level of an interval can keep");
  return level;
}

Json PriceBits::state() const {
  Json heard = Json::array();
  for (const ProbeLosses& losses : loop_.heard)
    heard.push_back({loss_json(losses.coarse), loss_json(losses.fine)});
  return {{"heard", std::move(heard)}};
}

void PriceBits::restore(const Json& state) {
  std::vector<ProbeLosses> heard;
  try {
    for (const Json& losses : state.at("heard"))
      heard.push_back({loss_from(losses.at(0)), loss_from(losses.at(1))});
  } catch (const Json::exception& error) {
    throw UserError(fmt::format("state of a price schedule: damaged ({})", json_reason(error)));
  }
  if (static_cast<std::int64_t>(heard.size()) > intervals_.probes())
    throw UserError("state of a price schedule: not of this schedule; resume with the one it was saved by");
  loop_ = {};
  loop_.left = budget_;
  decide();
  for (const ProbeLosses& losses : heard) hear(losses);
  if (this->state() != state)
    throw UserError("state of a price schedule: damaged (more than two losses of a probe)");
}

}  // namespace lowtide
