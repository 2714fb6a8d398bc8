#include "lowtide/engine/cuda/matrix_product.h"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/Exceptions.h>

#include "lowtide/base/cuda_stream.h"
#include "lowtide/engine/cuda/byte_product.h"
#include "lowtide/engine/cuda/matrix.h"

namespace lowtide::cuda {
namespace {

// Rows of halves begin where the tensor cores' widest loads may.
constexpr std::int64_t kRowMultiple = 8;
// Below, tiles of 128 rows are mostly empty, and too few for the GPU.
constexpr std::int64_t kLeastByteRows = 64;

MatrixCodes codes_of(const Quantized& q, const at::Tensor& contiguous_code) {
  MatrixCodes codes;
  codes.code = contiguous_code.data_ptr<std::uint8_t>();
  codes.scale = q.scale.data_ptr<float>();
  codes.offset = q.offset.data_ptr<float>();
  codes.by_row = q.scale.numel() > 1;
  codes.bits = q.bits;
  codes.rows = static_cast<int>(q.code.size(-2));
  codes.columns = static_cast<int>(q.code.size(-1));
  codes.matrices = static_cast<int>(q.code.dim() == 3 ? q.code.size(0) : 1);
  return codes;
}

LimbMatrix limbs_of(const ByteOperand& operand, const MatrixCodes& codes) {
  return {operand.limbs.data_ptr<std::int8_t>(), operand.sums.data_ptr<int>(), operand.unit.data_ptr<float>(),
          codes.rows, codes.columns};
}

ProductSide side_of(const HalfOperand& operand) {
  auto* first = operand.side.data_ptr<float>();
  const std::int64_t length = operand.matrices * operand.outer;
  return {first, first + length, first + 2 * length};
}

std::int64_t stride_of(const MatrixCodes& codes) {
  return (codes.columns + kRowMultiple - 1) / kRowMultiple * kRowMultiple;
}

// Room for an operand's halves.
HalfOperand allocate(const MatrixCodes& codes, bool inner_is_row, bool has_limbs, const at::Device& device) {
  HalfOperand operand;
  operand.matrices = codes.matrices;
  operand.outer = inner_is_row ? codes.columns : codes.rows;
  operand.inner = inner_is_row ? codes.rows : codes.columns;
  operand.inner_is_row = inner_is_row;
  const auto halves = at::TensorOptions(at::kHalf).device(device);
  const std::vector<std::int64_t> shape{codes.matrices, codes.rows, stride_of(codes)};
  operand.high = at::empty(shape, halves);
  if (has_limbs) operand.low = at::empty(shape, halves);
  operand.side = at::empty({3, operand.matrices, operand.outer}, halves.dtype(at::kFloat));
  return operand;
}

HalfMatrix matrix_of(const HalfOperand& operand) {
  return {operand.high.data_ptr(), operand.low.defined() ? operand.low.data_ptr() : nullptr,
          static_cast<int>(operand.high.size(2)), side_of(operand)};
}

at::Tensor work_for(const MatrixCodes& codes, const at::Device& device) {
  return at::empty({column_work_bytes(codes)}, at::TensorOptions(at::kByte).device(device));
}

// Scales are by the index that stays, or there is one for all.
HalfOperand centred(const Quantized& q, bool inner_is_row) {
  const at::Tensor code = q.code.contiguous();
  const MatrixCodes codes = codes_of(q, code);
  HalfOperand operand = allocate(codes, inner_is_row, /*has_limbs=*/false, code.device());
  if (inner_is_row) {
    const at::Tensor work = work_for(codes, code.device());
    halves_by_columns(codes, matrix_of(operand), work.data_ptr(), current_cuda_stream());
  } else {
    halves_by_rows(codes, matrix_of(operand), current_cuda_stream());
  }
  return operand;
}

// Scales are inside the sum: those of `other` too, where it is given.
HalfOperand in_limbs(const Quantized& q, const Quantized* other) {
  const at::Tensor code = q.code.contiguous();
  const MatrixCodes codes = codes_of(q, code);
  const at::Tensor other_code = other != nullptr ? other->code.contiguous() : at::Tensor();
  const MatrixCodes other_codes = other != nullptr ? codes_of(*other, other_code) : MatrixCodes{};
  HalfOperand operand = allocate(codes, /*inner_is_row=*/true, /*has_limbs=*/true, code.device());
  const at::Tensor work = work_for(codes, code.device());
  value_limbs(codes, other != nullptr ? &other_codes : nullptr, matrix_of(operand), work.data_ptr(),
              current_cuda_stream());
  return operand;
}

HalfOperand bare(const Quantized& q) {
  const at::Tensor code = q.code.contiguous();
  const MatrixCodes codes = codes_of(q, code);
  HalfOperand operand = allocate(codes, /*inner_is_row=*/true, /*has_limbs=*/false, code.device());
  bare_halves(codes, matrix_of(operand), current_cuda_stream());
  return operand;
}

// cuBLAS has columns where we have rows, so to it the right operand is the left one, and each is the transpose of what it is
// to us.
void multiply_halves(const at::Tensor& a_halves, const at::Tensor& b_halves, const HalfOperand& a,
                     const HalfOperand& b, float factor, float keep, at::Tensor& y) {
  const auto stride = [](const at::Tensor& halves) { return static_cast<int>(halves.size(2)); };
  const auto apart = [](const at::Tensor& halves) { return halves.size(1) * halves.size(2); };
  TORCH_CUDABLAS_CHECK(cublasGemmStridedBatchedEx(
      at::cuda::getCurrentCUDABlasHandle(), b.inner_is_row ? CUBLAS_OP_N : CUBLAS_OP_T,
      a.inner_is_row ? CUBLAS_OP_T : CUBLAS_OP_N, static_cast<int>(b.outer), static_cast<int>(a.outer),
      static_cast<int>(a.inner), &factor, b_halves.data_ptr(), CUDA_R_16F, stride(b_halves), apart(b_halves),
      a_halves.data_ptr(), CUDA_R_16F, stride(a_halves), apart(a_halves), &keep, y.data_ptr(), CUDA_R_32F,
      static_cast<int>(b.outer), a.outer * b.outer, static_cast<int>(a.matrices), CUBLAS_COMPUTE_32F,
      CUBLAS_GEMM_DEFAULT));
}

at::Tensor multiply(const HalfOperand& a, const HalfOperand& b) {
  at::Tensor y = at::empty({a.matrices, a.outer, b.outer}, a.side.options());
  if (y.numel() == 0) return y;
  multiply_halves(a.high, b.high, a, b, 1.0f, 0.0f, y);
  if (a.low.defined()) multiply_halves(a.low, b.high, a, b, 1 / kLowLimb, 1.0f, y);
  if (b.low.defined()) multiply_halves(a.high, b.low, a, b, 1 / kLowLimb, 1.0f, y);
  FinishArguments finish;
  finish.y = y.data_ptr<float>();
  finish.matrices = a.matrices;
  finish.rows = static_cast<int>(a.outer);
  finish.columns = static_cast<int>(b.outer);
  finish.depth = static_cast<int>(a.inner);
  finish.left = side_of(a);
  finish.right = side_of(b);
  finish_product(finish, current_cuda_stream());
  return y;
}

// A range for each matrix of a stack is one for each of its rows.
Quantized with_row_scales(const Quantized& q) {
  const std::int64_t matrices = q.code.dim() == 3 ? q.code.size(0) : 1, rows = q.code.size(-2);
  if (q.scale.numel() == 1 || q.scale.numel() == matrices * rows) return q;
  const auto of_rows = [&](const at::Tensor& of_matrix) {
    return of_matrix.unsqueeze(1).expand({matrices, rows}).reshape(-1);
  };
  return {q.code, of_rows(q.scale), of_rows(q.offset), q.bits};
}

bool has_row_scales(const Quantized& q) { return q.scale.numel() > 1; }

// A product of two matrices is a matrix, not a stack of one.
at::Tensor without_stack(const at::Tensor& y, const Quantized& a) { return a.code.dim() == 2 ? y[0] : y; }

}  // namespace

bool is_byte_matrix(const Quantized& q) {
  return q.code.is_cuda() && q.code.scalar_type() == at::kByte && q.code.numel() > 0 &&
         (q.code.dim() == 2 || q.code.dim() == 3);
}

bool fits_byte_product(const Quantized& a, const Quantized& b, const ProductShape& shape) {
  const auto is_aligned = [](const Quantized& q) {
    return reinterpret_cast<std::uintptr_t>(q.code.data_ptr()) % kByteRowMultiple == 0;
  };
  const std::int64_t terms = a.code.size(-1);
  return !shape.transpose_a && a.code.dim() == 2 && b.code.dim() == 2 && a.code.size(0) >= kLeastByteRows &&
         terms % kByteRowMultiple == 0 && terms <= kMostByteTerms && a.code.is_contiguous() &&
         b.code.is_contiguous() && is_aligned(a) && is_aligned(b);
}

ByteOperand byte_operand(const Quantized& b, bool transposed) {
  const MatrixCodes codes = codes_of(b, b.code);
  const auto numbers = at::TensorOptions(at::kFloat).device(b.code.device());
  if (transposed) {
    ByteOperand operand{at::empty({codes.rows}, numbers.dtype(at::kInt)), {}, {}};
    sum_code_rows(codes, operand.sums.data_ptr<int>(), current_cuda_stream());
    return operand;
  }
  const std::int64_t columns = codes.columns, terms = codes.rows;
  ByteOperand operand{at::empty({limb_sum_parts(codes.rows) * kByteLimbs * columns}, numbers.dtype(at::kInt)),
                      at::empty({kByteLimbs * columns * terms}, numbers.dtype(at::kChar)),
                      at::empty({1}, numbers)};
  make_limbs(codes, limbs_of(operand, codes), current_cuda_stream());
  return operand;
}

at::Tensor byte_product(const Quantized& a, const Quantized& b, const ByteOperand& of_b, bool transposed,
                        const at::Tensor& bias) {
  const MatrixCodes left = codes_of(a, a.code), right = codes_of(b, b.code);
  at::Tensor y = at::empty({left.rows, transposed ? right.rows : right.columns},
                           at::TensorOptions(at::kFloat).device(a.code.device()));
  if (!transposed) {
    multiply_limbs({left, limbs_of(of_b, right), y.data_ptr<float>()}, current_cuda_stream());
    return y;
  }
  ByteProductArguments p;
  p.a = left;
  p.b = right;
  p.b_sums = of_b.sums.data_ptr<int>();
  p.bias = bias.defined() ? bias.data_ptr<float>() : nullptr;
  p.y = y.data_ptr<float>();
  multiply_bytes(p, current_cuda_stream());
  return y;
}

at::Tensor product(const Quantized& stack_a, const Quantized& stack_b, const ProductShape& shape) {
  const Quantized a = with_row_scales(stack_a), b = with_row_scales(stack_b);
  const bool a_inside = shape.transpose_a && has_row_scales(a),
             b_inside = !shape.transpose_b && has_row_scales(b);
  HalfOperand left, right;
  if (a_inside && b_inside) {
    const bool left_is_smaller = a.code.numel() <= b.code.numel();  // two limbs of it are written
    left = left_is_smaller ? in_limbs(a, &b) : bare(a);
    right = left_is_smaller ? bare(b) : in_limbs(b, &a);
  } else {
    left = a_inside ? in_limbs(a, nullptr) : centred(a, shape.transpose_a);
    right = b_inside ? in_limbs(b, nullptr) : centred(b, !shape.transpose_b);
  }
  return without_stack(multiply(left, right), a);
}

at::Tensor PreparedMatrix::multiply(const Quantized& a) const {
  if (multiplies_bytes_ && fits_byte_product(a, codes, {.transpose_b = transposed})) {
    if (!bytes_.sums.defined()) bytes_ = byte_operand(codes, transposed);
    return byte_product(a, codes, bytes_, transposed, {});
  }
  if (!halves_.high.defined())
    halves_ = !transposed && has_row_scales(codes) ? in_limbs(codes, nullptr) : centred(codes, !transposed);
  return without_stack(cuda::multiply(centred(a, /*inner_is_row=*/false), halves_), a);
}

}  // namespace lowtide::cuda
