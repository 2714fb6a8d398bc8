#pragma once

#include "lowtide/engine/engine.h"

// Products of matrices of codes on a GPU: by kernels for bytes, where those are made for the GPU and the shape; else by cuBLAS,
// halves in and floats out.

namespace lowtide::cuda {

// An operand as halves. `inner` is the index that is summed over.
struct HalfOperand {
  at::Tensor high, low;  // low: only of values in two limbs
  at::Tensor side;       // factor, middle and total × matrices × outer
  std::int64_t matrices = 1, outer = 0, inner = 0;
  bool inner_is_row = false;  // of the matrix in memory
};

// Whether these are byte codes on a GPU, one matrix or a stack.
bool is_byte_matrix(const Quantized& q);

// Whether kernels for bytes take this product: rows of a lie along the sum, and begin where sixteen bytes can be read at once;
// and there are enough of them for a tile.
bool fits_byte_product(const Quantized& a, const Quantized& b, const ProductShape& shape);

// A right operand for such kernels: the sums of its rows of codes, where it is transposed; else its values as limbs.
struct ByteOperand {
  at::Tensor sums, limbs, unit;
};
ByteOperand byte_operand(const Quantized& b, bool transposed);

// The product by such kernels. Where b is transposed, a bias (undefined: none) is added to every row.
at::Tensor byte_product(const Quantized& a, const Quantized& b, const ByteOperand& of_b, bool transposed,
                        const at::Tensor& bias);

// The product by cuBLAS.
at::Tensor product(const Quantized& a, const Quantized& b, const ProductShape& shape);

// A right operand that serves many products, made ready when the first of them comes.
class PreparedMatrix final : public PreparedOperand {
 public:
  PreparedMatrix(const Quantized& b, bool is_transposed, bool multiplies_bytes)
      : PreparedOperand(b, is_transposed), multiplies_bytes_(multiplies_bytes) {}
  at::Tensor multiply(const Quantized& a) const;

 private:
  bool multiplies_bytes_;
  mutable ByteOperand bytes_;
  mutable HalfOperand halves_;
};

}  // namespace lowtide::cuda
