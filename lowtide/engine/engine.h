#pragma once

#include <ATen/ATen.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lowtide/quant/quantizer.h"

namespace lowtide {

class ImageWatcher;

// The geometry of a two-dimensional convolution; padding is a true zero.
struct ConvShape {
  std::array<std::int64_t, 4> input{};   // N, C, H, W
  std::array<std::int64_t, 4> weight{};  // out, in / groups, height, width
  std::array<std::int64_t, 2> stride{1, 1};
  std::array<std::int64_t, 2> padding{0, 0};
  std::int64_t groups = 1;

  std::int64_t output_height() const { return (input[2] + 2 * padding[0] - weight[2]) / stride[0] + 1; }
  std::int64_t output_width() const { return (input[3] + 2 * padding[1] - weight[3]) / stride[1] + 1; }
  // Multiply-accumulates for one item of the batch.
  std::int64_t macs() const {
    return output_height() * output_width() * weight[0] * weight[1] * weight[2] * weight[3];
  }
};

// A matrix product over the last two dimensions, either operand transposed first.
struct ProductShape {
  bool transpose_a = false;
  bool transpose_b = false;
};

// The right operand of a matrix product, made ready by an engine for many products in a row.
struct PreparedOperand {
  PreparedOperand(Quantized b, bool is_transposed) : codes(std::move(b)), transposed(is_transposed) {}
  virtual ~PreparedOperand() = default;

  Quantized codes;
  bool transposed;
};

// A sparse matrix in compressed rows, which gathers rows of features: entry e of row i stands for
// row_factor[i] · weights[e] · column_factor[indices[e]]. What is not defined is 1.
struct SparseRows {
  at::Tensor offsets;  // int64, rows + 1
  at::Tensor indices;  // int32
  std::int64_t columns = 0;
  at::Tensor
      weights;  // float32, one an entry; or entries × heads, each for its share of the features' columns
  at::Tensor row_factor, column_factor;  // float32

  std::int64_t rows() const { return offsets.numel() - 1; }
};

// How a quantised product is computed. All operands are quantised (or float, where their bits are 0), all
// results are float32. Engines differ in speed alone: each is tested against `simulated`.
class Engine {
 public:
  virtual ~Engine() = default;
  virtual std::string name() const = 0;

  // Whether what surrounds the products (normalisation, ReLU, quantiser) is to be fused into few passes over memory.
  virtual bool fuses() const { return false; }

  virtual at::Tensor conv2d(const Quantized& x, const Quantized& w, const ConvShape& shape,
                            ImageWatcher* watcher = nullptr) const = 0;
  // Added to `onto` where that is given: a tensor like the result, which may be written over; or the pixels that lie a stride
  // apart, from the first on, at which alone a 1×1 convolution in the same steps has a gradient.
  virtual at::Tensor conv2d_input_gradient(const Quantized& dy, const Quantized& w, const ConvShape& shape,
                                           const at::Tensor& onto = {},
                                           ImageWatcher* watcher = nullptr) const = 0;
  virtual at::Tensor conv2d_weight_gradient(const Quantized& dy, const Quantized& x,
                                            const ConvShape& shape) const = 0;

  // y = a·b; a linear layer's three products are (x, w with b transposed), (dy, w), (dy with a transposed,
  // x).
  virtual at::Tensor product(const Quantized& a, const Quantized& b, const ProductShape& shape) const = 0;

  // The same for matrices, with the right one as prepare() of this engine made it.
  virtual std::unique_ptr<const PreparedOperand> prepare(const Quantized& b, bool transposed) const;
  virtual at::Tensor multiply(const Quantized& a, const PreparedOperand& b) const;

  // The sum over every row's entries of the rows of `features` (columns × features) that they name. Its gradient is the
  // same with the transposed matrix.
  virtual at::Tensor aggregate(const SparseRows& matrix, const Quantized& features) const = 0;
};

// Of images, the pixels that lie so far apart, from the first on: a view.
at::Tensor pixels_apart(const at::Tensor& images, const std::array<std::int64_t, 2>& steps);

// For engines' conv2d_input_gradient: adds `onto`, where there is one, when the product is there.
at::Tensor add_onto(at::Tensor& dx, const at::Tensor& onto, const ConvShape& shape);

// The engines of this build, the reference first.
std::vector<std::string> engine_names();

// The engine to use where `asked` is "auto": `integer` on a CPU with instructions for it (AVX-512 VNNI), else `simulated`.
// Any other name stays, but one that cannot run on the device is a UserError.
std::string choose_engine(const std::string& asked, const std::string& device);

// Throws UserError for a name that is none of them.
std::shared_ptr<const Engine> make_engine(const std::string& name);

}  // namespace lowtide
