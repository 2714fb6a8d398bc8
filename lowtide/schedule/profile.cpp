#include "lowtide/schedule/profile.h"

#include <cmath>
#include <numbers>

namespace lowtide {
namespace {

__extension__ using Wide = __int128;

// Cosine and linear: the part of the range covered at phase z. Both are odd about (1/2, 1/2), hence their two
// flips are the same. The cosine is left to floating point on purpose: cos(π/3) comes out as 0.5 + 1 ulp, so
// that a value which is exactly half-way at z = 1/3 rounds down in the recorded sequences, and here.
double covered(Profile profile, double z) {
  return profile == Profile::kLinear ? z : (1.0 - std::cos(std::numbers::pi * z)) / 2.0;
}

// Exponential and REX: the part of the range still to cover at phase z, where u = 1 - z.
// REX: Chen, Wolfe, Kyrillidis, "REX: Revisiting budgeted training with an improved schedule", 2022.
double remaining(Profile profile, const ProfileParameters& p, double z, double u) {
  return profile == Profile::kExponential ? std::exp(-p.k * z) : u / ((1.0 - p.c) + p.c * u);
}

}  // namespace

Position position(std::int64_t step, std::int64_t cycles, std::int64_t total_steps) {
  // step * cycles reaches total_steps²: 128 bits hold it, so no step is ever assigned to a wrong cycle.
  const Wide product = static_cast<Wide>(step) * cycles;
  const auto cycle = static_cast<std::int64_t>(product / total_steps);
  const auto rest = static_cast<std::int64_t>(product % total_steps);
  return {cycle, static_cast<double>(rest) / static_cast<double>(total_steps)};
}

double value_at(Profile profile, Shape shape, const ProfileParameters& parameters, const Position& position,
                BitRange range) {
  const bool grows = shape == Shape::kRepeated || position.cycle % 2 == 1;
  const double low = range.low;
  const double high = range.high;
  const double distance = high - low;
  const double z = position.phase;
  const double u = 1.0 - z;
  if (profile == Profile::kCosine || profile == Profile::kLinear) {
    return grows ? low + distance * covered(profile, z) : high - distance * covered(profile, z);
  }
  if (grows) return high - distance * remaining(profile, parameters, z, u);
  if (shape == Shape::kTriangularVertical) return low + distance * remaining(profile, parameters, z, u);
  return high - distance * remaining(profile, parameters, u, z);
}

// The default rounding mode, which nothing here changes, is half to even.
int round_half_even(double value) { return static_cast<int>(std::nearbyint(value)); }

}  // namespace lowtide
