#pragma once

#include "lowtide/engine/engine.h"

// Products of matrices of codes on a GPU, by cuBLAS: halves in, floats out.

namespace lowtide::cuda {

// An operand as halves. `inner` is the index that is summed over.
struct HalfOperand {
  at::Tensor high, low;  // low: only of values in two planes
  at::Tensor side;       // factor, shift and total × matrices × outer
  std::int64_t matrices = 1, outer = 0, inner = 0;
  bool inner_is_row = false;  // of the matrix in memory
};

// Whether these are byte codes on a GPU, one matrix or a stack.
bool is_byte_matrix(const Quantized& q);

at::Tensor product(const Quantized& a, const Quantized& b, const ProductShape& shape);

// A right operand that serves many products.
struct PreparedHalves final : PreparedOperand {
  PreparedHalves(const Quantized& b, bool is_transposed);
  HalfOperand halves;
};
at::Tensor multiply(const Quantized& a, const PreparedHalves& b);

}  // namespace lowtide::cuda
