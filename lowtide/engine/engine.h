#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lowtide/engine/conv_norm.h"
#include "lowtide/engine/conv_shape.h"
#include "lowtide/quant/quantizer.h"

namespace lowtide {

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

  virtual at::Tensor conv2d(const Quantized& x, const Quantized& w, const ConvShape& shape) const = 0;
  virtual at::Tensor conv2d_input_gradient(const Quantized& dy, const Quantized& w,
                                           const ConvShape& shape) const = 0;
  virtual at::Tensor conv2d_weight_gradient(const Quantized& dy, const Quantized& x,
                                            const ConvShape& shape) const = 0;

  // The weights of a trunk's convolutions, at the beginning of its pass. `keeps`: a backward pass follows.
  virtual std::vector<std::shared_ptr<const PreparedConv>> prepare_convs(
      const std::vector<ConvWeight>& weights, bool keeps) const;

  // A convolution with the normalisation that follows it. Unless an engine has passes of its own, they are made of the above
  // and plain operations on tensors. The engine outlives what it returns.
  virtual std::unique_ptr<ConvNorm> conv_norm(const ConvNormCall& call) const;

  // Whether a convolution has kernels of this engine's, inside a trunk or by itself, where its bits fit; else it is computed as by
  // `simulated`.
  virtual bool has_kernels(const ConvWeight&, bool /*in_trunk*/) const { return true; }

  // Whether a step can be captured in a CUDA graph and replayed at other bits: they are read on the device.
  virtual bool is_capturable() const { return false; }

  // After a trunk's way back: its gradients are ready for whatever follows. An engine may compute some of them aside.
  virtual void finish_gradients() const {}

  // y = a·b; a linear layer's three products are (x, w with b transposed), (dy, w), (dy with a transposed,
  // x).
  virtual at::Tensor product(const Quantized& a, const Quantized& b, const ProductShape& shape) const = 0;

  // A product of matrices with b transposed, and a bias (undefined: none) added to every row: a linear layer's output.
  virtual at::Tensor linear(const Quantized& x, const Quantized& w, const at::Tensor& bias) const;

  // A product of matrices, with the right one as prepare() of this engine made it.
  virtual std::unique_ptr<const PreparedOperand> prepare(const Quantized& b, bool transposed) const;
  virtual at::Tensor multiply(const Quantized& a, const PreparedOperand& b) const;

  // The sum over every row's entries of the rows of `features` (columns × features) that they name. Its gradient is the
  // same with the transposed matrix.
  virtual at::Tensor aggregate(const SparseRows& matrix, const Quantized& features) const = 0;
};

// The engines of this build, the reference first.
std::vector<std::string> engine_names();

// The engine to use where `asked` is "auto": `cuda` on a GPU; `integer` on a CPU with instructions for it (AVX-512 VNNI),
// else `simulated`.
// Any other name stays, but one that cannot run on the device is a UserError.
std::string choose_engine(const std::string& asked, const std::string& device);

// Throws UserError for a name that is none of them.
std::shared_ptr<const Engine> make_engine(const std::string& name);

}  // namespace lowtide
