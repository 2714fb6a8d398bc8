#pragma once

#include <memory>
#include <string>

#include "lowtide/engine/engine.h"

namespace lowtide {

// An engine whose passes are each compared with the same in double precision, from the same operands. What the engine under
// test computed goes on, so no difference grows from one pass to the next, and every tolerance follows from the rounding
// of single sums.
class CheckedEngine final : public Engine {
 public:
  // `shows_outputs`: the convolutions' own results are asked for and compared too, which an engine may then not fuse with what
  // follows.
  explicit CheckedEngine(std::shared_ptr<const Engine> tested, bool shows_outputs = false)
      : tested_(std::move(tested)), shows_outputs_(shows_outputs) {}

  std::string name() const override { return "checked " + tested_->name(); }
  std::vector<std::shared_ptr<const PreparedConv>> prepare_convs(const std::vector<ConvWeight>& weights,
                                                                 bool keeps) const override {
    return tested_->prepare_convs(weights, keeps);
  }
  std::unique_ptr<ConvNorm> conv_norm(const ConvNormCall& call) const override;
  void finish_gradients() const override { tested_->finish_gradients(); }
  int stages_checked() const { return stages_checked_; }  // forward and all the way back

  at::Tensor conv2d(const Quantized& x, const Quantized& w, const ConvShape& shape) const override;
  at::Tensor conv2d_input_gradient(const Quantized& dy, const Quantized& w,
                                   const ConvShape& shape) const override;
  at::Tensor conv2d_weight_gradient(const Quantized& dy, const Quantized& x,
                                    const ConvShape& shape) const override;
  at::Tensor product(const Quantized& a, const Quantized& b, const ProductShape& shape) const override;
  at::Tensor aggregate(const SparseRows& matrix, const Quantized& features) const override;

 private:
  std::shared_ptr<const Engine> tested_;
  bool shows_outputs_;
  mutable int stages_checked_ = 0;
};

}  // namespace lowtide
