#pragma once

#include <cstdint>
#include <string>

namespace lowtide {

// The precision of one step: bits of the forward pass (weights and activations) and of the backward pass
// (gradients). 0 means fp32, not quantised at all.
struct Bits {
  int forward = 0;
  int backward = 0;
  bool operator==(const Bits&) const = default;
};

constexpr bool is_fp32(Bits bits) { return bits.forward == 0; }

// What a number of bits counts as in costs and pictures: fp32 is 32 bits wide.
constexpr int width(int bits) { return bits == 0 ? 32 : bits; }

// Bit operations of a multiply-accumulate and its two gradients: qf·qf, qf·qb and qf·qb.
constexpr std::int64_t step_cost(Bits bits) {
  const std::int64_t qf = width(bits.forward);
  return qf * qf + 2 * qf * width(bits.backward);
}

// "8 bits", "fp32"
inline std::string bits_name(int bits) { return bits == 0 ? "fp32" : std::to_string(bits) + " bits"; }

constexpr int kFewestBits = 2;
constexpr int kMostBits = 32;
constexpr std::int64_t kMostSteps = 1'000'000'000'000'000;  // of a run: sums stay far within 64 bits

}  // namespace lowtide
