#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "lowtide/base/json.h"
#include "lowtide/schedule/bits.h"
#include "lowtide/schedule/spec.h"

namespace lowtide {

// Which precision each training step has.
class Schedule {
 public:
  virtual ~Schedule() = default;

  // Steps count from 0; those beyond the last have its bits. A pure function of the step for all but
  // `progressive`, where it tells what the losses observed so far have led to.
  virtual Bits at(std::int64_t step) const = 0;

  // The steps from `step` up to this one, which is later, have the same bits.
  virtual std::int64_t same_until(std::int64_t step) const = 0;

  // The loss of a step that was trained at at(step). Only a stateful schedule listens.
  virtual void observe(std::int64_t step, double loss);
  virtual bool is_stateful() const;

  // What a resumed run needs to go on exactly as if it had not stopped.
  virtual Json state() const;
  virtual void restore(const Json& state);
};

// The learning rate of a step, where it is known beforehand.
using Rates = std::function<double(std::int64_t step)>;

// Throws UserError, with the reason, if the schedule is not possible in so many steps. Only `matched` needs rates.
std::unique_ptr<Schedule> make_schedule(const ScheduleSpec& spec, std::int64_t total_steps,
                                        const Rates& rates = {});

}  // namespace lowtide
