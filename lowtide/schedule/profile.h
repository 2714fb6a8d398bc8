#pragma once

#include <cstdint>

namespace lowtide {

struct BitRange {
  int low = 0;
  int high = 0;
  bool operator==(const BitRange&) const = default;
};

enum class Profile { kCosine, kLinear, kExponential, kRex };

// How a cycle runs. Repeated: every cycle grows. Triangular: even cycles decay, odd cycles grow; the decay is
// the growth mirrored vertically (swap low and high) or horizontally (run time backwards).
enum class Shape { kRepeated, kTriangularVertical, kTriangularHorizontal };

struct ProfileParameters {
  double k = 4.0;  // exponential: the rate
  double c = 0.9;  // REX: the bend; 0 is linear, the canonical REX has 0.5
};

// Where in its cycles a step lies: cycle = floor(step * cycles / total_steps), phase the fraction of it, in
// [0, 1).
struct Position {
  std::int64_t cycle = 0;
  double phase = 0.0;
};
Position position(std::int64_t step, std::int64_t cycles, std::int64_t total_steps);

// The profile's value between range.low and range.high, before rounding.
double value_at(Profile profile, Shape shape, const ProfileParameters& parameters, const Position& position,
                BitRange range);

int round_half_even(double value);

}  // namespace lowtide
