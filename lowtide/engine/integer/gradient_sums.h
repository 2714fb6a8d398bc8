#pragma once

#include <cstdint>
#include <vector>

#include "lowtide/engine/engine.h"
#include "lowtide/engine/integer/affine.h"

namespace lowtide::integer {

// What turns a weight gradient's integer sums into values. With dy = s (q - z) + e and x = sx (qx - zx) + ex, over
// the N positions at which the tap (ky, kx) falls onto the image,
//
//   Σ dy·x = s sx Σ (q - z)(qx - zx) + s ex Σ (q - z) + sx e Σ (qx - zx) + N e ex.
//
// The sums of q alone and of qx alone are taken here, for every channel and kernel position.
class GradientSums {
 public:
  GradientSums(const Quantized& dy, const Quantized& x, const ConvShape& shape);

  // `sum` is Σ q (qx - shift) of output channel o and input channel c, counted over all groups.
  float value(std::int64_t sum, std::int64_t shift, std::int64_t o, std::int64_t c, std::int64_t ky,
              std::int64_t kx) const;

 private:
  Affine error_, input_;
  std::int64_t kernel_cols_, outputs_, inputs_;
  std::vector<std::int64_t> positions_;                // N, by kernel position
  std::vector<std::int64_t> error_sums_, input_sums_;  // Σ q and Σ qx, [kernel position][channel]
};

}  // namespace lowtide::integer
