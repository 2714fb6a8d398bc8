#pragma once

#include "lowtide/engine/engine.h"

namespace lowtide {

// The sum of features over the entries of every row, each row by one thread and in the order of its entries: results do
// not depend on the number of threads. Features are floats, or bytes on a CPU: then a quarter of the memory is read, and
// with x = s·q + z, Σ w·x = Σ (w·s)·q + Σ w·z.
at::Tensor aggregate_rows(const SparseRows& matrix, const Quantized& features);

}  // namespace lowtide
