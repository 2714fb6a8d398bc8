#include "lowtide/engine/integer.h"

#include "lowtide/engine/aggregate.h"
#include "lowtide/engine/integer/affine.h"
#include "lowtide/engine/integer/fused_conv_norm.h"
#include "lowtide/engine/integer/matrix_operand.h"
#include "lowtide/engine/integer/products.h"
#include "lowtide/engine/pixels_apart.h"

namespace lowtide {
namespace {

bool is_bytes(const Quantized& q) {
  return fits_bytes(q.bits) && q.code.device().is_cpu() && q.code.numel() > 0;
}

// An activation or an error has one range for all of it; a tensor with one a row has no common factor.
bool fits(const Quantized& whole, const Quantized& other, std::int64_t terms) {
  return is_bytes(whole) && is_bytes(other) && whole.scale.numel() == 1 && terms <= integer::kMostTerms;
}

struct PackedOperand final : PreparedOperand {
  using PreparedOperand::PreparedOperand;
  std::unique_ptr<const integer::RightOperand> packed;
};

// There are no kernels for taps that lie apart.
bool fits(const Quantized& whole, const Quantized& other, const ConvShape& shape, std::int64_t channels) {
  return !shape.is_dilated() && fits(whole, other, channels * shape.weight[2] * shape.weight[3]);
}

}  // namespace

IntegerEngine::IntegerEngine(integer::InstructionSet set) : tiles_(integer::tile_kernels(set)) {}

at::Tensor IntegerEngine::conv2d(const Quantized& x, const Quantized& w, const ConvShape& shape,
                                 ImageWatcher* watcher) const {
  if (!fits(x, w, shape, shape.weight[1])) return simulated_.conv2d(x, w, shape);
  return integer::conv2d(x, w, shape, watcher, tiles_);
}

at::Tensor IntegerEngine::conv2d_input_gradient(const Quantized& dy, const Quantized& w,
                                                const ConvShape& shape, const OtherGradient& other,
                                                ImageWatcher* watcher) const {
  if (!fits(dy, w, shape, shape.weight[0] / shape.groups)) {
    return add_gradient(simulated_.conv2d_input_gradient(dy, w, shape), other);
  }
  return integer::conv2d_input_gradient(dy, w, shape, other, watcher, tiles_);
}

at::Tensor IntegerEngine::conv2d(const Quantized& x, const Quantized& w, const ConvShape& shape) const {
  return conv2d(x, w, shape, nullptr);
}

at::Tensor IntegerEngine::conv2d_input_gradient(const Quantized& dy, const Quantized& w,
                                                const ConvShape& shape) const {
  return conv2d_input_gradient(dy, w, shape, {}, nullptr);
}

std::unique_ptr<ConvNorm> IntegerEngine::conv_norm(const ConvNormCall& call) const {
  return std::make_unique<integer::FusedConvNorm>(*this, call);
}

at::Tensor IntegerEngine::conv2d_weight_gradient(const Quantized& dy, const Quantized& x,
                                                 const ConvShape& shape) const {
  if (shape.is_dilated() || !fits(dy, x, shape.output_width()) || x.scale.numel() != 1) {
    return simulated_.conv2d_weight_gradient(dy, x, shape);
  }
  return integer::conv2d_weight_gradient(dy, x, shape, tiles_);
}

at::Tensor IntegerEngine::product(const Quantized& a, const Quantized& b, const ProductShape& shape) const {
  const bool same_stack =
      a.code.dim() == b.code.dim() && a.code.sizes().slice(0, static_cast<std::size_t>(a.code.dim() - 2)) ==
                                          b.code.sizes().slice(0, static_cast<std::size_t>(b.code.dim() - 2));
  if (!is_bytes(a) || !is_bytes(b) || !same_stack) return simulated_.product(a, b, shape);
  return integer::product(a, b, shape, tiles_);
}

std::unique_ptr<const PreparedOperand> IntegerEngine::prepare(const Quantized& b, bool transposed) const {
  if (!is_bytes(b) || b.code.size(transposed ? 1 : 0) > integer::kMostTerms)
    return Engine::prepare(b, transposed);
  auto operand = std::make_unique<PackedOperand>(b, transposed);
  operand->packed = integer::pack_right(b, transposed);
  return operand;
}

at::Tensor IntegerEngine::multiply(const Quantized& a, const PreparedOperand& b) const {
  const auto* operand = dynamic_cast<const PackedOperand*>(&b);
  if (operand != nullptr && is_bytes(a)) return integer::product(a, *operand->packed, tiles_);
  return Engine::multiply(a, b);
}

at::Tensor IntegerEngine::aggregate(const SparseRows& matrix, const Quantized& features) const {
  return is_bytes(features) ? aggregate_rows(matrix, features) : simulated_.aggregate(matrix, features);
}

}  // namespace lowtide
