#pragma once

#include <cstdint>
#include <vector>

#include "lowtide/engine/engine.h"
#include "lowtide/engine/integer/affine.h"

namespace lowtide::integer {

// What was taken off the codes before they were multiplied.
struct Shifts {
  std::int32_t error = 0, input = 0;
};

// What turns a weight gradient's integer sums into values. With dy = s (q - z) + e and x = sx (qx - zx) + ex, over
// the N positions at which the tap (ky, kx) falls onto the image,
//
//   Σ dy·x = s sx Σ (q - z)(qx - zx) + s ex Σ (q - z) + sx e Σ (qx - zx) + N e ex.
//
// The sums of qx alone, for every channel and kernel position, are given. Those of q are taken here where they count, which
// they do not if the input was shifted to its zero and that is where its 0 lies, as ReLU leaves it.
class GradientSums {
 public:
  GradientSums(const Quantized& dy, const Quantized& x, const ConvShape& shape, const Shifts& shifts,
               std::vector<std::int64_t> input_sums);

  // Sums Σ (q - shift)(qx - shift) of one output channel and kernel position, of input channels from `first` on, become
  // values. Channels are counted over all groups.
  struct Row {
    const std::int64_t* sum = nullptr;
    std::int64_t step = 1;  // from a channel's sum to the next
    std::int64_t output = 0, place = 0, first = 0, channels = 0;
  };
  void values(const Row& row, float* out) const;

 private:
  Affine error_, input_;
  Shifts shifts_;
  std::int64_t outputs_, inputs_;
  std::vector<std::int64_t> positions_;                // N, by kernel position
  std::vector<std::int64_t> error_sums_, input_sums_;  // Σ q and Σ qx, [kernel position][channel]
};

}  // namespace lowtide::integer
