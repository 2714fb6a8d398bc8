#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "lowtide/base/json.h"
#include "lowtide/schedule/bits.h"
#include "lowtide/schedule/spec.h"

namespace lowtide {

// What a closed loop asks between two steps: the loss of fixed training items, forward only, at two neighbouring numbers
// of bits.
struct Probe {
  Bits coarse, fine;
  bool operator==(const Probe&) const = default;
};
struct ProbeLosses {
  double coarse = 0, fine = 0;
};

// A layer of the network that a schedule with bits for each layer is laid over.
struct LayerSize {
  std::int64_t macs = 0;  // of the forward pass, for one item
  bool is_chosen = true;  // its bits are the schedule's choice; else it has a rule, or nothing is heard of it
};

// Which precision each training step has.
class Schedule {
 public:
  virtual ~Schedule() = default;

  // Steps count from 0; those beyond the last have its bits. A pure function of the step for all but closed loops
  // (`progressive`, `price`, `waterfill`), where it tells what was observed so far has led to.
  virtual Bits at(std::int64_t step) const = 0;

  // Forward bits of each layer, where they are not the same: of those that make_schedule was told, in their order. Else empty.
  virtual std::vector<std::uint8_t> layers_at(std::int64_t step) const;

  // The steps from `step` up to this one, which is later, have the same bits.
  virtual std::int64_t same_until(std::int64_t step) const = 0;

  // The loss of a step that was trained at at(step), which a schedule hears that asks for it.
  virtual bool hears_losses() const;
  virtual void observe(std::int64_t step, double loss);

  // What a schedule wants to be told after a step before the next one's bits are asked for; and what it is told.
  virtual std::optional<Probe> probe_after(std::int64_t step) const;
  virtual void observe_probe(const ProbeLosses& losses);

  // Whether a schedule wants to hear, after a step, how sensitive the loss was to the rounding of each layer in it; and what
  // it hears (see LayerLook). Layers that are not chosen for have no number.
  virtual bool looks_at(std::int64_t step) const;
  virtual void observe_layers(const std::vector<double>& sensitivities);

  virtual bool is_stateful() const;

  // What a resumed run needs to go on exactly as if it had not stopped.
  virtual Json state() const;
  virtual void restore(const Json& state);
};

// The learning rate of a step, where it is known beforehand.
using Rates = std::function<double(std::int64_t step)>;

// Throws UserError, with the reason, if the schedule is not possible in so many steps. Only `matched` needs rates;
// `price` and `waterfill` plan by them where they are known. Without layers, `waterfill` is only planned.
std::unique_ptr<Schedule> make_schedule(const ScheduleSpec& spec, std::int64_t total_steps,
                                        const Rates& rates = {}, const std::vector<LayerSize>& layers = {});

}  // namespace lowtide
