#pragma once

#include "lowtide/quant/quantizer.h"

namespace lowtide {

// How a gradient passes a quantiser.
enum class StraightThrough {
  kAll,    // unchanged, everywhere: what the papers do
  kInside  // unchanged where the value lay within the range, 0 where it was clamped
};

// x rounded to its codes' values, for what is quantised without being an operand of a product. The gradient passes
// straight through.
at::Tensor fake_quantize(const at::Tensor& x, const Range& range, int bits,
                         const Noise& noise = Noise::none(),
                         StraightThrough gradient = StraightThrough::kAll);

}  // namespace lowtide
