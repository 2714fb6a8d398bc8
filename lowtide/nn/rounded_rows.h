#pragma once

#include "lowtide/quant/quantizer.h"

namespace lowtide {

// The rows of a matrix as they are when each is quantised with a range of its own, to nearest; times their factors, plus a bias
// for all. Factors (one a row) and bias may be undefined.
at::Tensor rounded_rows(const at::Tensor& x, const at::Tensor& factor, const at::Tensor& bias,
                        DeviceBits bits);

// A vector, with one range.
at::Tensor rounded(const at::Tensor& x, DeviceBits bits);

}  // namespace lowtide
