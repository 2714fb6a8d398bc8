#pragma once

#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <memory>

#include "lowtide/base/torch_compat.h"
#include "lowtide/engine/engine.h"
#include "lowtide/schedule/bits.h"

namespace lowtide {

// What a call of a quantised layer takes from the execution, fixed when the layer is called: the precision in force may have
// changed when the backward pass comes.
struct LayerFormat {
  std::shared_ptr<const Engine> engine;
  Bits bits;
  Noise noise = Noise::none();
  bool bifurcate = false;
  const std::uint8_t* forward_on_device = nullptr;  // the bits once more
  const std::uint8_t* backward_on_device = nullptr;

  DeviceBits forward_bits() const { return {bits.forward, forward_on_device}; }
  ErrorFormat error() const { return {{bits.backward, backward_on_device}, noise, bifurcate}; }
};

// All that a quantised layer's backward pass needs. It serves one, which gives up the operands as soon as it has used them.
struct LayerCall : torch::CustomClassHolder, LayerFormat {
  bool needs_input_gradient = false;
  Quantized input, weight;  // the operands of the forward product

  // What a backward pass begins with: UserError for the second of one forward pass, and for one that is itself to be
  // differentiated, of which no graph is kept.
  void expect_one_backward() const;
  // With one range for all, where none is given.
  LayerError quantise_error(const at::Tensor& output_gradient, const Range& range = {}) const;
  void release();
};

// Autograd takes an undefined tensor for a missing input only in this form.
Optional<at::Tensor> optional(const at::Tensor& tensor);

}  // namespace lowtide
