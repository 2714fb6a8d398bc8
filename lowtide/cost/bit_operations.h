#pragma once

#include <cstdint>
#include <string>

#include "lowtide/base/json.h"
#include "lowtide/schedule/bits.h"

namespace lowtide {

// Bit operations outgrow 64 bits: ResNet-50 (4.1e9 MACs) · 450 000 steps · 256 images · 3·32² is 1.5e21.
__extension__ using Count = unsigned __int128;

// Of the three products of a layer: y = x ∗ w, its error (dx) and its weight gradient (dw).
struct BitOperations {
  Count forward = 0;
  Count error = 0;
  Count weight_gradient = 0;

  Count total() const { return forward + error + weight_gradient; }
  BitOperations& operator+=(const BitOperations& other);
  bool operator==(const BitOperations&) const = default;
};

// One multiply-accumulate of each product: qf·qf, qf·qb and qf·qb, fp32 counted as 32 bits; and so many of
// them.
BitOperations bit_operations(Bits bits, Count macs = 1);

// The cost of a step relative to fp32, as the papers print it: (qf² + 2·qf·qb) / (3·32²), the numerator
// being step_cost.
constexpr std::int64_t kRelativeCostDenominator = std::int64_t{3} * 32 * 32;
double relative_cost(Bits bits);

double gbitops(Count count);  // for people; the exact number is for files

std::string to_decimal(Count count);
// A number up to 2^53, which every reader of JSON holds exactly, else its decimal digits as a string.
Json exact_json(Count count);

}  // namespace lowtide
