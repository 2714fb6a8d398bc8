#include "lowtide/cost/bit_operations.h"

#include <algorithm>

namespace lowtide {

BitOperations& BitOperations::operator+=(const BitOperations& other) {
  forward += other.forward;
  error += other.error;
  weight_gradient += other.weight_gradient;
  return *this;
}

BitOperations bit_operations(Bits bits, Count macs) {
  const auto qf = static_cast<Count>(width(bits.forward));
  const auto qb = static_cast<Count>(width(bits.backward));
  return {qf * qf * macs, qf * qb * macs, qf * qb * macs};
}

double relative_cost(Bits bits) {
  return static_cast<double>(step_cost(bits)) / static_cast<double>(kRelativeCostDenominator);
}

double gbitops(Count count) { return static_cast<double>(count) / 1e9; }

std::string to_decimal(Count count) {
  std::string digits;
  do {
    digits += static_cast<char>('0' + static_cast<int>(count % 10));
    count /= 10;
  } while (count != 0);
  std::reverse(digits.begin(), digits.end());
  return digits;
}

Json exact_json(Count count) {
  constexpr Count kLargestExact = Count{1} << 53;
  if (count <= kLargestExact) return static_cast<std::uint64_t>(count);
  return to_decimal(count);
}

}  // namespace lowtide
