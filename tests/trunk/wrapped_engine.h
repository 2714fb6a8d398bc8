#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "lowtide/engine/engine.h"

namespace lowtide {

// All that another engine does, for a test to change some of it.
class WrappedEngine : public Engine {
 public:
  explicit WrappedEngine(std::shared_ptr<const Engine> inner) : inner_(std::move(inner)) {}

  std::vector<std::shared_ptr<const PreparedConv>> prepare_convs(const std::vector<ConvWeight>& weights,
                                                                 bool keeps) const override {
    return inner_->prepare_convs(weights, keeps);
  }
  void finish_gradients() const override { inner_->finish_gradients(); }

  at::Tensor conv2d(const Quantized& x, const Quantized& w, const ConvShape& shape) const override {
    return inner_->conv2d(x, w, shape);
  }
  at::Tensor conv2d_input_gradient(const Quantized& dy, const Quantized& w,
                                   const ConvShape& shape) const override {
    return inner_->conv2d_input_gradient(dy, w, shape);
  }
  at::Tensor conv2d_weight_gradient(const Quantized& dy, const Quantized& x,
                                    const ConvShape& shape) const override {
    return inner_->conv2d_weight_gradient(dy, x, shape);
  }
  at::Tensor product(const Quantized& a, const Quantized& b, const ProductShape& shape) const override {
    return inner_->product(a, b, shape);
  }
  at::Tensor aggregate(const SparseRows& matrix, const Quantized& features) const override {
    return inner_->aggregate(matrix, features);
  }

 protected:
  const std::shared_ptr<const Engine> inner_;
};

}  // namespace lowtide
