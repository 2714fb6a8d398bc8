#include "lowtide/engine/observed.h"

#include <utility>

namespace lowtide {
namespace {

class ObservedEngine final : public Engine {
 public:
  ObservedEngine(std::shared_ptr<const Engine> engine, std::shared_ptr<ProductObserver> observer,
                 WeightLayout layout)
      : engine_(std::move(engine)), observer_(std::move(observer)), layout_(layout) {}

  std::string name() const override { return engine_->name(); }

  at::Tensor conv2d(const Quantized& x, const Quantized& w, const ConvShape& shape) const override {
    observer_->forward(x, w);
    weight_ = w;
    has_input_gradient_ = false;
    return engine_->conv2d(x, w, shape);
  }

  at::Tensor conv2d_input_gradient(const Quantized& dy, const Quantized& w,
                                   const ConvShape& shape) const override {
    at::Tensor dx = engine_->conv2d_input_gradient(dy, w, shape);
    if (!std::exchange(has_input_gradient_, true)) observer_->input_gradient(dx);
    return dx;
  }

  // Whichever gradient is asked for first; that at the input may not be asked for at all.
  at::Tensor conv2d_weight_gradient(const Quantized& dy, const Quantized& x,
                                    const ConvShape& shape) const override {
    at::Tensor dw = engine_->conv2d_weight_gradient(dy, x, shape);
    if (!has_input_gradient_ && observer_->needs_input_gradient()) conv2d_input_gradient(dy, weight_, shape);
    observer_->weight_gradient(dy, dw);
    return dw;
  }

  // x·wᵀ, dy·w and dyᵀ·x; where weights lie inputs × outputs x·w, dy·wᵀ and xᵀ·dy.
  at::Tensor product(const Quantized& a, const Quantized& b, const ProductShape& shape) const override {
    at::Tensor result = engine_->product(a, b, shape);
    const bool by_inputs = layout_ == WeightLayout::kInputsByOutputs;
    if (shape.transpose_a) {
      observer_->weight_gradient(by_inputs ? b : a, result);
    } else if (shape.transpose_b != by_inputs) {
      observer_->forward(a, b);
    } else {
      observer_->input_gradient(result);
    }
    return result;
  }

  at::Tensor aggregate(const SparseRows& matrix, const Quantized& features) const override {
    return engine_->aggregate(matrix, features);
  }

 private:
  const std::shared_ptr<const Engine> engine_;
  const std::shared_ptr<ProductObserver> observer_;
  const WeightLayout layout_;
  mutable Quantized
      weight_;  // of the last forward product, and whether the observer was shown its input's gradient
  mutable bool has_input_gradient_ = false;
};

}  // namespace

std::shared_ptr<const Engine> observed(std::shared_ptr<const Engine> engine,
                                       std::shared_ptr<ProductObserver> observer, WeightLayout layout) {
  return std::make_shared<ObservedEngine>(std::move(engine), std::move(observer), layout);
}

}  // namespace lowtide
