#include <ATen/Parallel.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "lowtide/engine/integer/matrix_operand.h"
#include "lowtide/engine/integer/products.h"
#include "lowtide/engine/integer/tuning.h"

namespace lowtide::integer {
namespace {

struct Result {
  float* y;
  std::int64_t row_step, column_step;
  bool adds = false;                // to what is there
  const float* constant = nullptr;  // or to these, one a column; for a column_step of 1
};

void multiply_rows(const Side& left, const RightOperand& right, std::int64_t first, std::int64_t rows,
                   std::int64_t from, const Result& result, const TileKernels& tiles) {
  thread_local Scratch<std::int8_t> packed_memory;
  thread_local Scratch<std::int32_t> sum_memory, window_memory;
  const std::int64_t quads = quads_for(right.terms());
  std::int8_t* packed = packed_memory.at_least(quads * kMatrixTileRows * kQuad);
  std::int32_t* sum = sum_memory.at_least(kMatrixTileRows * kMostVectors * kLanes);
  std::int32_t* window_sum = window_memory.at_least(kMatrixTileRows);
  const PixelLayout layout = tiles.layout(quads, rows);
  pack_left(left, first, rows, from, from + right.terms(), layout, packed);
  tiles.channel_sums(packed, quads, layout, rows, window_sum);
  if (result.constant != nullptr) {
    for (std::int64_t row = first; row < first + rows; ++row) {
      std::copy_n(result.constant, right.columns(), result.y + row * result.row_step);
    }
  }
  thread_local std::vector<RowTerms> row_terms;
  row_terms.clear();
  for (std::int64_t row = 0; row < rows; ++row) {
    row_terms.emplace_back(left.at(first + row), window_sum[row], right.terms());
  }
  const RowOutputs out{.y = result.y + first * result.row_step,
                       .row_step = result.row_step,
                       .column_step = result.column_step,
                       .adds = result.adds || result.constant != nullptr};
  const std::int32_t here = 0;
  for (const VectorBlock& block : right.blocks()) {
    tiles.dot_row({.input = packed,
                   .weight = right.packed(block),
                   .tap = &here,
                   .taps = 1,
                   .quads = quads,
                   .layout = layout,
                   .sum = sum,
                   .pixels = rows},
                  block.vectors);
    right.finish_rows(block, sum, row_terms, out);
  }
}

// y = left · right over elements [from, from + right.terms()) of the left operand.
void multiply(const Side& left, const RightOperand& right, std::int64_t from, const Result& result,
              const TileKernels& tiles) {
  const std::int64_t row_tiles = (left.across + kMatrixTileRows - 1) / kMatrixTileRows;
  const std::int64_t macs = left.across * right.columns() * right.terms();
  at::parallel_for(0, row_tiles, grain_for(macs, row_tiles), [&](std::int64_t begin, std::int64_t end) {
    const TileUse use(tiles);
    for (std::int64_t tile = begin; tile < end; ++tile) {
      const std::int64_t first = tile * kMatrixTileRows;
      multiply_rows(left, right, first, std::min(kMatrixTileRows, left.across - first), from, result, tiles);
    }
  });
}

// A sum longer than kMostTerms is cut into chunks.
void multiply_all(const Side& left, const Side& right, bool terms_scaled, std::int64_t terms, Result result,
                  const TileKernels& tiles) {
  const std::int64_t chunks = (terms + kMostTerms - 1) / kMostTerms;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    const std::int64_t from = terms * chunk / chunks, to = terms * (chunk + 1) / chunks;
    const auto operand = make_right_operand(right, terms_scaled, from, to);
    multiply(left, *operand, from, result, tiles);
    result.adds = true;
    result.constant = nullptr;
  }
}

// Whether every row of the matrix, or of each matrix of a stack, has a range of its own.
bool has_range_per_row(const Quantized& q) {
  return q.scale.numel() > 1 && q.scale.numel() == q.code.numel() / q.code.size(-1);
}

// Matrix `index` of a stack, with its dimensions named.
Side side_of(const Quantized& q, const at::Tensor& stack, std::int64_t index, bool summed_first) {
  Side side;
  const std::int64_t rows = stack.size(1), columns = stack.size(2);
  side.code = stack.data_ptr<std::uint8_t>() + index * rows * columns;
  side.across = summed_first ? columns : rows;
  side.across_step = summed_first ? 1 : columns;
  side.along_step = summed_first ? columns : 1;
  if (q.scale.numel() == 1) {
    side.affine.push_back(Affine::of(q));
  } else if (has_range_per_row(q)) {
    side.affine = affine_rows(q, index * rows, rows);
  } else {
    side.affine.push_back(Affine::of(q, index / (stack.size(0) / q.code.size(0))));
  }
  return side;
}

bool scale_varies_along_sum(const Quantized& q, bool summed_first) {
  return has_range_per_row(q) && summed_first;
}

// The right operand takes over the scales of the left that change along the sum:
//   Σ (sa·qa + za)·b = Σ qa·(sa·b) + Σ za·b,
// with sa, za and b at each element along. Leaves the left one's bare codes; returns the second sum, one a column.
KeptVector<float> fold_scales(Side& left, Side& right) {
  KeptVector<double> constant(static_cast<std::size_t>(right.across));
  if (right.affine.size() == 1) right.affine.resize(left.affine.size(), Affine(right.affine[0]));
  for (std::size_t k = 0; k < right.affine.size(); ++k) {
    const Affine& a = left.affine[k];
    Affine& b = right.affine[k];
    const std::uint8_t* code = right.code + static_cast<std::int64_t>(k) * right.along_step;
    const double offset = a.value(0);
    for (std::int64_t c = 0; c < right.across; ++c) {
      constant[static_cast<std::size_t>(c)] += offset * b.value(code[c * right.across_step]);
    }
    b.scale *= a.scale;
    b.residual *= a.scale;
  }
  left.affine = {Affine{.scale = 1}};
  return {constant.begin(), constant.end()};
}

at::Tensor as_stack(const at::Tensor& code) {
  return code.reshape({-1, code.size(-2), code.size(-1)}).contiguous();
}

}  // namespace

at::Tensor product(const Quantized& a, const Quantized& b, const ProductShape& shape,
                   const TileKernels& tiles) {
  const at::Tensor left_stack = as_stack(a.code), right_stack = as_stack(b.code);
  const std::int64_t rows = left_stack.size(shape.transpose_a ? 2 : 1);
  const std::int64_t terms = left_stack.size(shape.transpose_a ? 1 : 2);
  const std::int64_t columns = right_stack.size(shape.transpose_b ? 1 : 2);
  std::vector<std::int64_t> sizes(a.code.sizes().begin(), a.code.sizes().end());
  sizes[sizes.size() - 2] = rows;
  sizes[sizes.size() - 1] = columns;
  at::Tensor y = at::empty(sizes, a.scale.options());
  const bool left_varies = scale_varies_along_sum(a, shape.transpose_a);
  const bool right_varies = scale_varies_along_sum(b, !shape.transpose_b);
  // Scales are folded where both change, or where the right operand has so few columns that their limbs are soon packed.
  const bool few_columns = b.scale.numel() == 1 && !shape.transpose_b && 2 * columns <= rows;
  const bool folds = left_varies && (right_varies || few_columns);
  const auto one = [&](std::int64_t index) {
    Side left = side_of(a, left_stack, index, shape.transpose_a);
    Side right = side_of(b, right_stack, index, !shape.transpose_b);
    float* out = y.data_ptr<float>() + index * rows * columns;
    if (folds) {
      const KeptVector<float> constant = fold_scales(left, right);
      multiply_all(left, right, true, terms,
                   {.y = out, .row_step = columns, .column_step = 1, .constant = constant.data()}, tiles);
    } else if (left_varies) {
      multiply_all(right, left, true, terms, {.y = out, .row_step = 1, .column_step = columns}, tiles);
    } else {
      multiply_all(left, right, right_varies, terms, {.y = out, .row_step = columns, .column_step = 1},
                   tiles);
    }
  };
  const std::int64_t matrices = left_stack.size(0);
  const std::int64_t grain =
      matrices == 1 ? 1 : std::max<std::int64_t>(1, kParallelMacs / (rows * terms * columns));
  if (matrices == 1) {
    one(0);
  } else {
    at::parallel_for(0, matrices, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t index = begin; index < end; ++index) one(index);
    });
  }
  return y;
}

std::unique_ptr<const RightOperand> pack_right(const Quantized& b, bool transposed) {
  const at::Tensor stack = as_stack(b.code);
  const Side right = side_of(b, stack, 0, /*summed_first=*/!transposed);
  return make_right_operand(right, scale_varies_along_sum(b, !transposed), 0, stack.size(transposed ? 2 : 1));
}

at::Tensor product(const Quantized& a, const RightOperand& b, const TileKernels& tiles) {
  const at::Tensor stack = as_stack(a.code);
  const Side left = side_of(a, stack, 0, /*summed_first=*/false);
  at::Tensor y = at::empty({stack.size(1), b.columns()}, a.scale.options());
  multiply(left, b, 0, {.y = y.data_ptr<float>(), .row_step = b.columns(), .column_step = 1}, tiles);
  return y;
}

}  // namespace lowtide::integer
