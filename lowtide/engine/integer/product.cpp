#include <ATen/Parallel.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "lowtide/engine/integer/affine.h"
#include "lowtide/engine/integer/dense.h"
#include "lowtide/engine/integer/fixed_point.h"
#include "lowtide/engine/integer/products.h"

// Matrix products are rows of pixels with one tap. The left operand's rows are the pixels, the right one's columns the
// lanes; an operand whose scale changes along the sum becomes 24-bit integers and stands on the right, as in
// conv_input_gradient.cpp.

namespace lowtide::integer {
namespace {

// One operand of one matrix product: `along` is the dimension that is summed, `across` the other.
struct Side {
  const std::uint8_t* code = nullptr;
  std::int64_t across = 0, across_step = 0, along_step = 0;
  std::vector<Affine> affine;  // one, or one for each index across
  const Affine& at(std::int64_t i) const {
    return affine[affine.size() == 1 ? 0 : static_cast<std::size_t>(i)];
  }
};

constexpr std::int64_t kTileRows = 32;  // a tile's packed rows of 1024 inner elements are 32 KiB

// Rows [first, first + rows) of the left operand, elements [from, to) along: [quad][row][4], signed.
void pack_left(const Side& left, std::int64_t first, std::int64_t rows, std::int64_t from, std::int64_t to,
               std::int8_t* packed) {
  const std::int64_t quads = quads_for(to - from);
  std::fill_n(packed, quads * rows * kQuad, std::int8_t{0});
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::uint8_t* code = left.code + (first + row) * left.across_step + from * left.along_step;
    for (std::int64_t k = 0; k < to - from; ++k) {
      packed[(k / kQuad * rows + row) * kQuad + k % kQuad] =
          static_cast<std::int8_t>(code[k * left.along_step] - left.at(first + row).shift);
    }
  }
}

// The right operand's columns over elements [from, to) along: what the tiles read, and what turns sums into values.
class RightOperand {
 public:
  RightOperand(std::int64_t columns, std::int64_t vectors, std::int64_t terms, bool threes = false)
      : weights(vectors, 1, quads_for(terms), threes), columns_(columns), terms_(terms) {}
  virtual ~RightOperand() = default;
  // Adds one row's values to y, `step` floats apart. `box` is Σ (qa - shift) of the row.
  virtual void add_row(const Block& block, const std::int32_t* sum, std::int32_t box, const Affine& a,
                       float* y, std::int64_t step) const = 0;

  PackedWeights weights;

 protected:
  std::int64_t columns_, terms_;
};

// One scale for each column, or for all.
class ScaledColumns final : public RightOperand {
 public:
  ScaledColumns(const Side& right, std::int64_t from, std::int64_t to)
      : RightOperand(right.across, vectors_for(right.across), to - from), right_(right) {
    sums_.resize(static_cast<std::size_t>(right.across));
    for (const Block& block : weights.blocks) {
      for (int v = 0; v < block.vectors; ++v) pack(block, v, from, to);
    }
  }

  // As conv_output.cpp derives it.
  void add_row(const Block& block, const std::int32_t* sum, std::int32_t box, const Affine& a, float* y,
               std::int64_t step) const override {
    const std::int64_t first = block.first * kLanes;
    const std::int64_t d = a.shift - a.zero;
    const double centred_row = static_cast<double>(box + terms_ * d);
    for (std::int64_t i = 0; i < std::min<std::int64_t>(block.vectors * kLanes, columns_ - first); ++i) {
      const Affine& b = right_.at(first + i);
      const std::int64_t column = sums_[static_cast<std::size_t>(first + i)];  // Σ (qb - zb)
      const std::int64_t whole = sum[i] - static_cast<std::int64_t>(b.zero) * box + d * column;
      const double value =
          static_cast<double>(a.scale) * (b.scale * static_cast<double>(whole) + b.residual * centred_row) +
          a.residual * (b.scale * static_cast<double>(column) + static_cast<double>(terms_) * b.residual);
      y[(first + i) * step] += static_cast<float>(value);
    }
  }

 private:
  void pack(const Block& block, int v, std::int64_t from, std::int64_t to) {
    const std::int64_t first = (block.first + v) * kLanes;
    for (std::int64_t quad = 0; quad < quads_for(terms_); ++quad) {
      std::uint8_t* out = weights.at(block, v, 0, quad);
      std::fill_n(out, kVectorBytes, std::uint8_t{0});
      for (std::int64_t lane = 0; lane < std::min<std::int64_t>(kLanes, columns_ - first); ++lane) {
        const std::uint8_t* code = right_.code + (first + lane) * right_.across_step;
        for (std::int64_t k = from + quad * kQuad; k < std::min(to, from + (quad + 1) * kQuad); ++k) {
          const std::uint8_t q = code[k * right_.along_step];
          out[lane * kQuad + (k - from) % kQuad] = q;
          sums_[static_cast<std::size_t>(first + lane)] += q - right_.at(first + lane).zero;
        }
      }
    }
  }

  const Side& right_;
  std::vector<std::int64_t> sums_;
};

// One scale for each element along the sum.
class ScaledTerms final : public RightOperand {
 public:
  ScaledTerms(const Side& right, std::int64_t from, std::int64_t to)
      : RightOperand(right.across, kPlanes * vectors_for(right.across), to - from, /*threes=*/true),
        fixed_(right.code + from * right.along_step,
               std::vector<Affine>(right.affine.begin() + from, right.affine.begin() + to), right.across) {
    sums_.resize(static_cast<std::size_t>(right.across));
    values_.resize(sums_.size());
    for (std::int64_t k = 0; k < terms_; ++k) {
      for (std::int64_t c = 0; c < columns_; ++c) {
        sums_[static_cast<std::size_t>(c)] += static_cast<std::int64_t>(fixed_.row(k)[c]) - kMiddle;
        values_[static_cast<std::size_t>(c)] += fixed_.value(k, c);
      }
    }
    for (const Block& block : weights.blocks) {
      for (int plane = 0; plane < kPlanes; ++plane) pack(block, plane);
    }
  }

  // As conv_input_gradient.cpp derives it.
  void add_row(const Block& block, const std::int32_t* sum, std::int32_t box, const Affine& a, float* y,
               std::int64_t step) const override {
    const std::int64_t d = a.shift - a.zero;
    const double centred_row = static_cast<double>(box + terms_ * d);
    const std::int64_t first = block.first / kPlanes * kLanes;
    for (std::int64_t i = 0; i < std::min<std::int64_t>(kLanes, columns_ - first); ++i) {
      const auto c = static_cast<std::size_t>(first + i);
      const std::int64_t u =
          (std::int64_t{sum[i]} << 16) + (std::int64_t{sum[kLanes + i]} << 8) + sum[2 * kLanes + i];
      const std::int64_t whole = u - kMiddle * box + d * sums_[c];
      const double value = static_cast<double>(a.scale) * (fixed_.scale[c] * static_cast<double>(whole) +
                                                           fixed_.middle[c] * centred_row) +
                           a.residual * values_[c];
      y[(first + i) * step] += static_cast<float>(value);
    }
  }

 private:
  static constexpr std::int64_t kMiddle = 1 << 23;

  void pack(const Block& block, int plane) {
    const std::int64_t first = block.first / kPlanes * kLanes;
    for (std::int64_t quad = 0; quad < quads_for(terms_); ++quad) {
      std::uint8_t* out = weights.at(block, plane, 0, quad);
      std::fill_n(out, kVectorBytes, std::uint8_t{0});
      for (std::int64_t k = quad * kQuad; k < std::min(terms_, (quad + 1) * kQuad); ++k) {
        const std::uint32_t* u = fixed_.row(k) + first;
        for (std::int64_t lane = 0; lane < std::min<std::int64_t>(kLanes, columns_ - first); ++lane) {
          out[lane * kQuad + k % kQuad] = FixedPoint::byte(u[lane], plane);
        }
      }
    }
  }

  FixedPoint fixed_;
  std::vector<std::int64_t> sums_;
  std::vector<double> values_;
};

struct Result {
  float* y;
  std::int64_t row_step, column_step;
};

void multiply_rows(const Side& left, RightOperand& right, std::int64_t first, std::int64_t rows,
                   std::int64_t from, std::int64_t to, const Result& result, const TileKernels& tiles) {
  thread_local Scratch<std::int8_t> packed_memory;
  thread_local Scratch<std::int32_t> sum_memory, box_memory;
  const std::int64_t quads = quads_for(to - from);
  std::int8_t* packed = packed_memory.at_least(quads * rows * kQuad);
  std::int32_t* sum = sum_memory.at_least(rows * kMostVectors * kLanes);
  std::int32_t* box = box_memory.at_least(rows);
  pack_left(left, first, rows, from, to, packed);
  tiles.channel_sums(packed, quads, rows * kQuad, rows, box);
  const std::int32_t here = 0;
  for (const Block& block : right.weights.blocks) {
    tiles.dot_row({packed, right.weights.of(block), &here, 1, quads, rows * kQuad, sum, rows}, block.vectors);
    for (std::int64_t row = 0; row < rows; ++row) {
      right.add_row(block, sum + row * block.vectors * kLanes, box[row], left.at(first + row),
                    result.y + (first + row) * result.row_step, result.column_step);
    }
  }
}

// y += left · right. A sum longer than kMostTerms is cut into stretches.
void multiply(const Side& left, const Side& right, bool terms_scaled, std::int64_t terms,
              const Result& result, const TileKernels& tiles) {
  const std::int64_t stretches = (terms + kMostTerms - 1) / kMostTerms;
  for (std::int64_t stretch = 0; stretch < stretches; ++stretch) {
    const std::int64_t from = terms * stretch / stretches, to = terms * (stretch + 1) / stretches;
    std::unique_ptr<RightOperand> operand;
    if (terms_scaled) {
      operand = std::make_unique<ScaledTerms>(right, from, to);
    } else {
      operand = std::make_unique<ScaledColumns>(right, from, to);
    }
    const std::int64_t row_tiles = (left.across + kTileRows - 1) / kTileRows;
    const std::int64_t macs = left.across * right.across * (to - from);
    at::parallel_for(0, row_tiles, macs < 2'000'000 ? row_tiles : 1,
                     [&](std::int64_t begin, std::int64_t end) {
                       for (std::int64_t tile = begin; tile < end; ++tile) {
                         const std::int64_t first = tile * kTileRows;
                         multiply_rows(left, *operand, first, std::min(kTileRows, left.across - first), from,
                                       to, result, tiles);
                       }
                     });
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
    for (std::int64_t row = 0; row < rows; ++row) side.affine.push_back(Affine::of(q, index * rows + row));
  } else {
    side.affine.push_back(Affine::of(q, index / (stack.size(0) / q.code.size(0))));
  }
  return side;
}

bool scale_varies_along_sum(const Quantized& q, bool summed_first) {
  return has_range_per_row(q) && summed_first;
}

// Where the scales of both change along the sum, the right operand takes over those of the left:
//   Σ (sa·qa + za)·b = Σ qa·(sa·b) + Σ za·b,
// with sa, za and b at each element along. Leaves the left one's bare codes; returns the second sum, one a column.
std::vector<double> fold_scales(Side& left, Side& right) {
  std::vector<double> constant(static_cast<std::size_t>(right.across));
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
  return constant;
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
  at::Tensor y = at::zeros(sizes, a.scale.options());
  const bool left_varies = scale_varies_along_sum(a, shape.transpose_a);
  const bool right_varies = scale_varies_along_sum(b, !shape.transpose_b);
  const auto one = [&](std::int64_t index) {
    Side left = side_of(a, left_stack, index, shape.transpose_a);
    Side right = side_of(b, right_stack, index, !shape.transpose_b);
    float* out = y.data_ptr<float>() + index * rows * columns;
    if (left_varies && right_varies) {
      const std::vector<double> constant = fold_scales(left, right);
      for (std::int64_t i = 0; i < rows * columns; ++i) {
        out[i] = static_cast<float>(constant[static_cast<std::size_t>(i % columns)]);
      }
      multiply(left, right, true, terms, {out, columns, 1}, tiles);
    } else if (left_varies) {
      multiply(right, left, true, terms, {out, 1, columns}, tiles);
    } else {
      multiply(left, right, right_varies, terms, {out, columns, 1}, tiles);
    }
  };
  const std::int64_t matrices = left_stack.size(0);
  const std::int64_t grain =
      matrices == 1 ? 1 : std::max<std::int64_t>(1, 2'000'000 / (rows * terms * columns));
  if (matrices == 1) {
    one(0);
  } else {
    at::parallel_for(0, matrices, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t index = begin; index < end; ++index) one(index);
    });
  }
  return y;
}

}  // namespace lowtide::integer
