#include "lowtide/schedule/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "lowtide/base/error.h"
#include "lowtide/schedule/budget.h"
#include "lowtide/schedule/cycles.h"
#include "lowtide/schedule/price.h"
#include "lowtide/schedule/progressive.h"
#include "lowtide/schedule/text.h"
#include "lowtide/schedule/waterfill.h"

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
  TableBits(const ScheduleSpec& spec, const std::vector<LayerSize>& layers) {
    const std::size_t of_table = spec.table.runs()[0].layers.size();
    if (of_table > 0 && !layers.empty() && of_table != layers.size())
      throw UserError(
          fmt::format("the table has bits of {} layers, and the network has {}; expected as many, in the "
                      "order of `lowtide cost`",
                      of_table, layers.size()));
    std::int64_t end = 0;
    for (const TableRun& run : spec.table.runs()) {
      end += run.steps;
      runs_.push_back({end, {run.bits, spec.grad.high}, run.layers});
    }
  }

  Bits at(std::int64_t step) const override { return find(step).bits; }
  std::vector<std::uint8_t> layers_at(std::int64_t step) const override { return find(step).layers; }
  std::int64_t same_until(std::int64_t step) const override {
    const Run& run = find(step);
    return &run == &runs_.back() ? kForever : run.end;
  }

 private:
  struct Run {
    std::int64_t end = 0;  // the step after its last
    Bits bits;
    std::vector<std::uint8_t> layers;
  };

  const Run& find(std::int64_t step) const {
    const auto found = std::upper_bound(runs_.begin(), runs_.end(), step,
                                        [](std::int64_t at, const Run& run) { return at < run.end; });
    return found == runs_.end() ? runs_.back() : *found;
  }

  std::vector<Run> runs_;
};

// Bits that were computed for every step.
class ListedBits final : public Schedule {
 public:
  ListedBits(std::vector<std::uint8_t> forward, std::vector<std::uint8_t> backward)
      : forward_(std::move(forward)), backward_(std::move(backward)) {}

  Bits at(std::int64_t step) const override {
    const auto i = static_cast<std::size_t>(std::clamp<std::int64_t>(step, 0, steps() - 1));
    return {forward_[i], backward_[i]};
  }
  std::int64_t same_until(std::int64_t step) const override {
    std::int64_t end = step + 1;
    while (end < steps() && at(end) == at(step)) ++end;
    return end < steps() ? end : kForever;
  }

 private:
  std::int64_t steps() const { return static_cast<std::int64_t>(forward_.size()); }

  std::vector<std::uint8_t> forward_, backward_;
};

// Forward bits of one schedule, gradient bits of another.
class PairedBits final : public Schedule {
 public:
  PairedBits(std::unique_ptr<Schedule> forward, std::unique_ptr<Schedule> gradient)
      : forward_(std::move(forward)), gradient_(std::move(gradient)) {}

  Bits at(std::int64_t step) const override {
    return {forward_->at(step).forward, gradient_->at(step).forward};
  }
  std::vector<std::uint8_t> layers_at(std::int64_t step) const override { return forward_->layers_at(step); }
  std::int64_t same_until(std::int64_t step) const override {
    return std::min(forward_->same_until(step), gradient_->same_until(step));
  }

 private:
  std::unique_ptr<Schedule> forward_, gradient_;
};

// A schedule between a delay and a tail.
class FramedBits final : public Schedule {
 public:
  struct Frame {
    std::int64_t delay = 0;
    Bits first;
    std::int64_t tail_from = 0;
    Bits last;
  };
  FramedBits(const Frame& frame, std::unique_ptr<Schedule> inner) : frame_(frame), inner_(std::move(inner)) {}

  Bits at(std::int64_t step) const override {
    if (step < frame_.delay) return frame_.first;
    return step < frame_.tail_from ? inner_->at(step - frame_.delay) : frame_.last;
  }
  std::int64_t same_until(std::int64_t step) const override {
    if (step < frame_.delay) return frame_.delay;
    if (step >= frame_.tail_from) return kForever;
    const std::int64_t inner = inner_->same_until(step - frame_.delay);
    return inner >= frame_.tail_from - frame_.delay ? frame_.tail_from : inner + frame_.delay;
  }
  bool hears_losses() const override { return inner_->hears_losses(); }
  void observe(std::int64_t step, double loss) override {
    if (step >= frame_.delay) inner_->observe(step - frame_.delay, loss);
  }
  std::optional<Probe> probe_after(std::int64_t step) const override {
    return step < frame_.delay ? std::nullopt : inner_->probe_after(step - frame_.delay);
  }
  void observe_probe(const ProbeLosses& losses) override { inner_->observe_probe(losses); }
  std::vector<std::uint8_t> layers_at(std::int64_t step) const override {
    const bool is_inner = step >= frame_.delay && step < frame_.tail_from;
    return is_inner ? inner_->layers_at(step - frame_.delay) : std::vector<std::uint8_t>();
  }
  bool looks_at(std::int64_t step) const override {
    return step >= frame_.delay && step < frame_.tail_from && inner_->looks_at(step - frame_.delay);
  }
  void observe_layers(const std::vector<double>& sensitivities) override {
    inner_->observe_layers(sensitivities);
  }
  bool is_stateful() const override { return inner_->is_stateful(); }
  Json state() const override { return inner_->state(); }
  void restore(const Json& state) override { inner_->restore(state); }

 private:
  Frame frame_;
  std::unique_ptr<Schedule> inner_;
};

FramedBits::Frame frame_of(const ScheduleSpec& spec, std::int64_t total_steps) {
  FramedBits::Frame frame;
  frame.delay = delay_steps(spec, total_steps);
  if (spec.delay) frame.first = part_bits(*spec.delay, spec.highest());
  frame.tail_from = spec.tail ? total_steps - tail_steps(spec, total_steps) : kForever;
  frame.last = spec.last();
  return frame;
}

// Without a budget, delay and tail.
std::unique_ptr<Schedule> make_plain(const ScheduleSpec& spec, std::int64_t total_steps,
                                     const std::vector<LayerSize>& layers = {}) {
  if (const CyclicSchedule* cyclic = find_cyclic(spec.name)) {
    return std::make_unique<CyclicBits>(*cyclic, spec, total_steps);
  }
  if (spec.name == "table") return std::make_unique<TableBits>(spec, layers);
  if (spec.name == "progressive") return std::make_unique<ProgressiveBits>(spec);
  const bool is_window = spec.name == "window";
  const std::int64_t to = is_window ? spec.to : spec.name == "deficit" ? spec.steps : 0;
  return std::make_unique<WindowBits>(Bits{spec.bits.low, spec.grad.low}, spec.highest(),
                                      is_window ? spec.from : 0, to);
}

// The forward bits that a schedule with a budget wants, as real numbers, up to a constant.
std::function<double(std::int64_t)> wanted_bits(const ScheduleSpec& spec, std::int64_t steps,
                                                const Rates& rates, std::int64_t first_step) {
  if (spec.name == "static") return [](std::int64_t) { return 0.0; };
  if (const CyclicSchedule* cyclic = find_cyclic(spec.name)) {
    return [=](std::int64_t step) {
      return value_at(cyclic->profile, cyclic->shape, {spec.k, spec.c}, position(step, spec.cycles, steps),
                      spec.bits);
    };
  }
  if (spec.name == "table") {
    return [table = std::make_shared<TableBits>(spec, std::vector<LayerSize>{})](std::int64_t step) {
      return static_cast<double>(table->at(step).forward);
    };
  }
  if (!rates && spec.is_closed_loop()) return [](std::int64_t) { return 0.0; };
  if (!rates) {
    throw UserError(
        "matched follows the learning rate of a recipe, which must be known beforehand; expected another "
        "lr-schedule "
        "than plateau");
  }
  double highest = 0.0;
  for (std::int64_t step = 0; step < steps; ++step) highest = std::max(highest, rates(first_step + step));
  // Noise of rounding goes as 4^-bits, that of SGD as its rate: alpha = 1 keeps their ratio. A rate of 0 wants the most.
  return [=, alpha = spec.alpha](std::int64_t step) {
    const double rate = rates(first_step + step);
    return rate > 0.0 ? alpha / 2 * std::log2(highest / rate) : alpha * kMostBits;
  };
}

// Bit operations of a MAC between delay and tail.
struct CostRange {
  std::int64_t least = 0, most = 0;
};

// "0.2969 to 1.0000", rounded inwards; one number in full where nothing is left between.
std::string share_range(double least, double most) {
  const double low = std::ceil(least * 1e4 - 1e-6) / 1e4, high = std::floor(most * 1e4 + 1e-6) / 1e4;
  return low <= high ? fmt::format("{:.4f} to {:.4f}", low, high) : fmt::format("{}", most);
}

// The budget that is left between delay and tail, or UserError with the range that is possible.
std::int64_t budget_between(const ScheduleSpec& spec, BitRange bits, const CostRange& possible,
                            std::int64_t total_steps) {
  const FramedBits::Frame frame = frame_of(spec, total_steps);
  const std::int64_t fixed =
      frame.delay * step_cost(frame.first) + tail_steps(spec, total_steps) * step_cost(frame.last);
  const auto whole = static_cast<double>(total_steps) * static_cast<double>(step_cost(spec.highest()));
  // 0.63 · 2000 · 192 is a whole number, which floating point may miss by its last bit.
  const auto budget = static_cast<std::int64_t>(std::floor(*spec.budget * whole * (1 + 1e-12)));
  const std::int64_t least = fixed + possible.least, most = fixed + possible.most;
  if (budget < least || budget > most) {
    throw UserError(
        fmt::format("budget={} of static {} grad={} cannot be met by {} to {} bits; possible is {}",
                    *spec.budget, spec.bits.high, spec.grad.high, bits.low, bits.high,
                    share_range(static_cast<double>(least) / whole, static_cast<double>(most) / whole)));
  }
  return budget - fixed;
}

std::unique_ptr<Schedule> make_price(const ScheduleSpec& spec, std::int64_t total_steps, Spending spending) {
  const PriceIntervals intervals{
      {static_cast<std::int64_t>(spending.wanted.size()), spec.every}, spec.bits, spec.grad.high};
  const std::int64_t budget =
      budget_between(spec, spec.bits, {intervals.least(), intervals.most()}, total_steps);
  return std::make_unique<PriceBits>(intervals, std::move(spending), budget);
}

// `total_steps` of the run, `steps` of them between delay and tail.
std::unique_ptr<Schedule> make_budgeted(const ScheduleSpec& spec, std::int64_t total_steps,
                                        std::int64_t steps, const Rates& rates,
                                        const std::vector<LayerSize>& layers) {
  ScheduleSpec of_gradients = spec.grad_line.empty() ? spec : spec.grad_line[0];
  if (spec.grad_line.empty()) of_gradients.bits = spec.grad;
  const bool moves = spec.grad.low != spec.grad.high;
  const std::unique_ptr<Schedule> backward = moves ? make_plain(of_gradients, steps) : nullptr;
  const auto wanted = wanted_bits(spec, steps, rates, delay_steps(spec, total_steps));
  Spending spending{.wanted = {}, .gradient = {}, .range = spec.bits};
  if (spec.name == "static") spending.range.low = kFewestBits;
  for (std::int64_t step = 0; step < steps; ++step) {
    spending.wanted.push_back(to_fixed(wanted(step)));
    spending.gradient.push_back(
        static_cast<std::uint8_t>(moves ? backward->at(step).forward : spec.grad.high));
  }
  if (spec.name == "price") return make_price(spec, total_steps, std::move(spending));
  const CostRange possible{spending.cost_at(spending.range.low), spending.cost_at(spending.range.high)};
  const std::int64_t budget = budget_between(spec, spending.range, possible, total_steps);
  if (spec.name == "waterfill")
    return std::make_unique<WaterfillBits>(Intervals{steps, spec.every}, std::move(spending), budget, layers);
  std::vector<std::uint8_t> forward = spend(spending, budget);
  return std::make_unique<ListedBits>(std::move(forward), std::move(spending.gradient));
}

}  // namespace

bool Schedule::hears_losses() const { return false; }
void Schedule::observe(std::int64_t, double) {}
std::optional<Probe> Schedule::probe_after(std::int64_t) const { return std::nullopt; }
void Schedule::observe_probe(const ProbeLosses&) {}
std::vector<std::uint8_t> Schedule::layers_at(std::int64_t) const { return {}; }
bool Schedule::looks_at(std::int64_t) const { return false; }
void Schedule::observe_layers(const std::vector<double>&) {}
bool Schedule::is_stateful() const { return false; }
Json Schedule::state() const { return Json::object(); }
void Schedule::restore(const Json&) {}

std::unique_ptr<Schedule> make_schedule(const ScheduleSpec& spec, std::int64_t total_steps,
                                        const Rates& rates, const std::vector<LayerSize>& layers) {
  try {
    check(spec, total_steps);
    const std::int64_t steps = total_steps - delay_steps(spec, total_steps) - tail_steps(spec, total_steps);
    std::unique_ptr<Schedule> schedule = spec.budget ? make_budgeted(spec, total_steps, steps, rates, layers)
                                                     : make_plain(spec, steps, layers);
    if (!spec.grad_line.empty() && !spec.budget)
      schedule = std::make_unique<PairedBits>(std::move(schedule), make_plain(spec.grad_line[0], steps));
    if (!spec.delay && !spec.tail) return schedule;
    return std::make_unique<FramedBits>(frame_of(spec, total_steps), std::move(schedule));
  } catch (const UserError& error) {
    throw UserError(fmt::format("schedule {}: {}", lowtide::quoted(to_string(spec)), error.what()));
  }
}

}  // namespace lowtide
