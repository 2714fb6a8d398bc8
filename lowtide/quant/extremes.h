#pragma once

#include <cmath>

#include "lowtide/base/random.h"

namespace lowtide {

// The least and the greatest of some numbers. On any device; without a constructor, so that memory shared by threads can
// hold them.
struct Extremes {
  float min, max;
  float poison;  // NaN once a number was not finite: 0 · inf and 0 · NaN are NaN, 0 · x is 0

  LOWTIDE_HOST_DEVICE static constexpr Extremes of_none() { return {INFINITY, -INFINITY, 0.0f}; }

  LOWTIDE_HOST_DEVICE void join(const Extremes& other) {
    min = other.min < min ? other.min : min;
    max = other.max > max ? other.max : max;
    poison += other.poison;
  }
  LOWTIDE_HOST_DEVICE void include(float x) { join({x, x, x * 0.0f}); }

  // Both NaN if any number was not finite.
  LOWTIDE_HOST_DEVICE float least() const { return min + poison; }
  LOWTIDE_HOST_DEVICE float range() const { return max - min + poison; }
};

}  // namespace lowtide
