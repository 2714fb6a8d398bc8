#pragma once

#include "lowtide/engine/engine.h"
#include "lowtide/engine/integer/tiles.h"
#include "lowtide/engine/simulated.h"

namespace lowtide {

class ImageWatcher;

// Codes of 8 bits and fewer multiplied as bytes and summed as 32-bit integers, on the CPU. What it has no integers for
// (wider codes, float operands, sums too long for 32 bits) it leaves to `simulated`.
class IntegerEngine final : public Engine {
 public:
  explicit IntegerEngine(integer::InstructionSet set = integer::instruction_sets().front());

  std::string name() const override { return "integer"; }
  at::Tensor conv2d(const Quantized& x, const Quantized& w, const ConvShape& shape) const override;
  at::Tensor conv2d_input_gradient(const Quantized& dy, const Quantized& w,
                                   const ConvShape& shape) const override;
  at::Tensor conv2d_weight_gradient(const Quantized& dy, const Quantized& x,
                                    const ConvShape& shape) const override;
  std::unique_ptr<ConvNorm> conv_norm(const ConvNormCall& call) const override;
  at::Tensor product(const Quantized& a, const Quantized& b, const ProductShape& shape) const override;
  std::unique_ptr<const PreparedOperand> prepare(const Quantized& b, bool transposed) const override;
  at::Tensor multiply(const Quantized& a, const PreparedOperand& b) const override;
  at::Tensor aggregate(const SparseRows& matrix, const Quantized& features) const override;

  // For this engine's passes of a trunk. `watcher` (null: none) is told of each image of the result once it is complete;
  // `other` is added to the gradient.
  at::Tensor conv2d(const Quantized& x, const Quantized& w, const ConvShape& shape,
                    ImageWatcher* watcher) const;
  at::Tensor conv2d_input_gradient(const Quantized& dy, const Quantized& w, const ConvShape& shape,
                                   const OtherGradient& other, ImageWatcher* watcher) const;

 private:
  const integer::TileKernels& tiles_;
  SimulatedEngine simulated_;
};

}  // namespace lowtide
