#include "lowtide/schedule/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "lowtide/base/error.h"
#include "lowtide/schedule/cycles.h"
#include "lowtide/schedule/progressive.h"
#include "lowtide/schedule/text.h"

namespace lowtide {
namespace {

constexpr std::int64_t kForever = std::numeric_limits<std::int64_t>::max();

class CyclicBits final : public Schedule {
 public:
  CyclicBits(const CyclicSchedule& cyclic, const ScheduleSpec& spec, std::int64_t total_steps)
      : cyclic_(cyclic),
        parameters_{spec.k, spec.c},
        bits_(spec.bits),
        grad_(spec.grad),
        cycles_(spec.cycles),
        total_steps_(total_steps) {}

  Bits at(std::int64_t step) const override {
    const Position where =
        position(std::clamp<std::int64_t>(step, 0, total_steps_ - 1), cycles_, total_steps_);
    const int forward = rounded(where, bits_);
    return {forward, grad_.low == grad_.high ? grad_.low : rounded(where, grad_)};
  }

  // A cycle rises throughout, or falls: what lies between two of its steps with the same bits has them too.
  std::int64_t same_until(std::int64_t step) const override {
    if (step >= total_steps_ - 1) return kForever;
    const Bits bits = at(step);
    const std::int64_t cycle = position(step, cycles_, total_steps_).cycle;
    const auto is_same = [&](std::int64_t later) {
      return position(later, cycles_, total_steps_).cycle == cycle && at(later) == bits;
    };
    std::int64_t distance = 1;
    while (distance < total_steps_ - step && is_same(step + distance)) distance *= 2;
    std::int64_t same = step + distance / 2, other = std::min(step + distance, total_steps_);
    while (other - same > 1) {
      const std::int64_t middle = same + (other - same) / 2;
      (is_same(middle) ? same : other) = middle;
    }
    return other;
  }

 private:
  int rounded(const Position& where, BitRange range) const {
    return round_half_even(value_at(cyclic_.profile, cyclic_.shape, parameters_, where, range));
  }

  const CyclicSchedule& cyclic_;
  ProfileParameters parameters_;
  BitRange bits_;
  BitRange grad_;
  std::int64_t cycles_;
  std::int64_t total_steps_;
};

// `low` in [from, to), else `high`: static (low = high), fp32, deficit and window.
class WindowBits final : public Schedule {
 public:
  WindowBits(Bits low, Bits high, std::int64_t from, std::int64_t to)
      : low_(low), high_(high), from_(from), to_(to) {}

  Bits at(std::int64_t step) const override { return step >= from_ && step < to_ ? low_ : high_; }
  std::int64_t same_until(std::int64_t step) const override {
    return step < from_ ? from_ : step < to_ ? to_ : kForever;
  }

 private:
  Bits low_;
  Bits high_;
  std::int64_t from_;
  std::int64_t to_;
};

class TableBits final : public Schedule {
 public:
  explicit TableBits(const ScheduleSpec& spec) {
    std::int64_t end = 0;
    for (const TableRun& run : spec.table.runs()) {
      end += run.steps;
      runs_.push_back({end, {run.bits, spec.grad.high}});
    }
  }

  Bits at(std::int64_t step) const override { return find(step).bits; }
  std::int64_t same_until(std::int64_t step) const override {
    const Run& run = find(step);
    return &run == &runs_.back() ? kForever : run.end;
  }

 private:
  struct Run {
    std::int64_t end = 0;  // the step after its last
    Bits bits;
  };

  const Run& find(std::int64_t step) const {
    const auto found = std::upper_bound(runs_.begin(), runs_.end(), step,
                                        [](std::int64_t at, const Run& run) { return at < run.end; });
    return found == runs_.end() ? runs_.back() : *found;
  }

  std::vector<Run> runs_;
};

class DelayedBits final : public Schedule {
 public:
  DelayedBits(Bits first, std::int64_t delay, std::unique_ptr<Schedule> inner)
      : first_(first), delay_(delay), inner_(std::move(inner)) {}

  Bits at(std::int64_t step) const override { return step < delay_ ? first_ : inner_->at(step - delay_); }
  std::int64_t same_until(std::int64_t step) const override {
    if (step < delay_) return delay_;
    const std::int64_t inner = inner_->same_until(step - delay_);
    return inner == kForever ? kForever : inner + delay_;
  }
  void observe(std::int64_t step, double loss) override {
    if (step >= delay_) inner_->observe(step - delay_, loss);
  }
  bool is_stateful() const override { return inner_->is_stateful(); }
  Json state() const override { return inner_->state(); }
  void restore(const Json& state) override { inner_->restore(state); }

 private:
  Bits first_;
  std::int64_t delay_;
  std::unique_ptr<Schedule> inner_;
};

std::unique_ptr<Schedule> make_undelayed(const ScheduleSpec& spec, std::int64_t total_steps) {
  if (const CyclicSchedule* cyclic = find_cyclic(spec.name)) {
    return std::make_unique<CyclicBits>(*cyclic, spec, total_steps);
  }
  if (spec.name == "table") return std::make_unique<TableBits>(spec);
  if (spec.name == "progressive") return std::make_unique<ProgressiveBits>(spec);
  const bool is_window = spec.name == "window";
  const std::int64_t to = is_window ? spec.to : spec.name == "deficit" ? spec.steps : 0;
  return std::make_unique<WindowBits>(Bits{spec.bits.low, spec.grad.low}, spec.highest(),
                                      is_window ? spec.from : 0, to);
}

// A first part in fp32 has its gradients in fp32 too.
Bits first_bits(const ScheduleSpec& spec) {
  const Bits highest = spec.highest();
  if (!spec.delay->bits) return highest;
  return *spec.delay->bits == 0 ? Bits{} : Bits{*spec.delay->bits, highest.backward};
}

}  // namespace

void Schedule::observe(std::int64_t, double) {}
bool Schedule::is_stateful() const { return false; }
Json Schedule::state() const { return Json::object(); }
void Schedule::restore(const Json&) {}

std::unique_ptr<Schedule> make_schedule(const ScheduleSpec& spec, std::int64_t total_steps) {
  try {
    check(spec, total_steps);
  } catch (const UserError& error) {
    throw UserError(fmt::format("schedule {}: {}", lowtide::quoted(to_string(spec)), error.what()));
  }
  const std::int64_t delay = delay_steps(spec, total_steps);
  std::unique_ptr<Schedule> schedule = make_undelayed(spec, total_steps - delay);
  if (!spec.delay) return schedule;
  return std::make_unique<DelayedBits>(first_bits(spec), delay, std::move(schedule));
}

}  // namespace lowtide
