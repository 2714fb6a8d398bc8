#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include "lowtide/engine/conv_shape.h"
#include "lowtide/nn/quant_layer.h"
#include "python/module/quantization.h"

namespace lowtide::python {

// The running range of an activation, as two buffers of a Python module.
struct RangeBuffers {
  at::Tensor min, range;
};

// One quantised product of a Python module. The module keeps weights and buffers, and gives them to each call: whatever
// PyTorch does to a module's parameters (moving, tying, reparametrising) is in force.
class Layer final : public QuantLayer {
 public:
  Layer(std::shared_ptr<Quantization> quantization, const std::string& name, bool has_weights);
  // For a copy of the module: with the same bits and the same noise.
  Layer(const Layer& other)
      : QuantLayer(other), quantization_(other.quantization_), is_measured_(other.is_measured_.load()) {}

  const std::shared_ptr<Quantization>& quantization() const { return quantization_; }

  // As torch.nn.functional's: UserError for shapes that do not fit. Inputs of other floating types become float32.
  struct ConvGeometry {
    std::array<std::int64_t, 2> stride, padding, dilation;
    std::int64_t groups = 1;
  };
  at::Tensor conv2d(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                    const ConvGeometry& geometry, const RangeBuffers& range, bool training) const;
  // `by_position`: gradients at the same position of their items share a range; x is batch × length × features.
  at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                    bool by_position, const RangeBuffers& range, bool training) const;
  at::Tensor product(const at::Tensor& a, const at::Tensor& b, std::int64_t items, bool training) const;
  // Outputs, last hidden state, last cell.
  std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm(const at::Tensor& x, const at::Tensor& input_weight,
                                                      const at::Tensor& hidden_weight, const at::Tensor& bias,
                                                      const at::Tensor& hidden, const at::Tensor& cell,
                                                      const RangeBuffers& input_range,
                                                      const RangeBuffers& hidden_range, bool training) const;

 private:
  // What every call begins with; returns x as the engine takes it.
  at::Tensor begin(const at::Tensor& x, bool training) const;
  void expect_float(const at::Tensor& weight) const;
  // Before an evaluation: a range that training has never measured would round every input to one value.
  void expect_measured(const RangeBuffers& range, bool training) const;
  void expect(bool holds, const std::string& what) const;

  std::shared_ptr<Quantization> quantization_;
  mutable std::atomic<bool> is_measured_ = false;  // once known, so that the device is waited for once
};

}  // namespace lowtide::python
