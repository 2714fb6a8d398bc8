#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lowtide/base/kept_memory.h"
#include "lowtide/engine/integer/affine.h"
#include "lowtide/engine/integer/direct_walk.h"

// With x = sx (qx - zx) + ex and w = sw (qw - zw) + ew, see affine.h, summed over the N valid terms,
//
//   Σ x·w = sx sw Σ (qx - zx)(qw - zw) + sx ew Σ (qx - zx) + ex (sw Σ (qw - zw) + N ew).
//
// The tiles give acc = Σ (qx - bias) qw and window_sum = Σ (qx - bias); with d = bias - zx
//
//   Σ (qx - zx)(qw - zw) = acc - zw window_sum + d Σ (qw - zw)      Σ (qx - zx) = window_sum + N d.
//
// What does not depend on the pixel but on its class of valid taps is computed once.

namespace lowtide::integer {

// One phase's constants, a column for each output channel, padded to whole vectors.
struct OutputEpilogue {
  std::int64_t channels = 0;  // real ones
  std::int64_t padded = 0;
  std::size_t col_classes = 0;
  KeptVector<std::int32_t> zero_point;    // zw
  KeptVector<float> scale;                // sx sw
  KeptVector<float> window_scale;         // sx ew
  KeptVector<std::int32_t> class_sum;     // d Σ (qw - zw), by class
  std::vector<std::int32_t> class_terms;  // N d, by class alone
  KeptVector<float> class_value;          // ex (sw Σ (qw - zw) + N ew), by class

  void row(const SumRow& r) const;
};

// The weight codes of one group: [channel][kernel row][kernel column][input channel].
struct GroupWeights {
  const std::uint8_t* code;
  std::int64_t rows, cols, inputs;

  const std::uint8_t* at(std::int64_t channel, const Tap& tap) const {
    return code + ((channel * rows + tap.kernel_row) * cols + tap.kernel_col) * inputs;
  }
};

OutputEpilogue make_output_epilogue(const GroupWeights& w, const Phase& phase, const Affine& x,
                                    std::span<const Affine> rows);

}  // namespace lowtide::integer
