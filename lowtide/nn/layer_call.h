#pragma once

#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <cstddef>
#include <memory>

#include "lowtide/base/torch_compat.h"
#include "lowtide/engine/engine.h"
#include "lowtide/schedule/bits.h"

namespace lowtide {

// All that a quantised layer's backward pass needs beside its saved codes, fixed when the layer was called:
// the precision in force may have changed by then.
struct LayerCall : torch::CustomClassHolder {
  std::shared_ptr<const Engine> engine;
  Bits bits;
  Noise noise = Noise::none();
  bool bifurcate = false;
  bool needs_input_gradient = false;
  Range input_range;
};

// The error that feeds a layer's two gradients: the gradient at its output, quantised.
struct LayerError {
  Quantized for_input;
  Quantized for_weight;  // the float gradient itself where the call bifurcates
};

LayerError quantise_error(const at::Tensor& output_gradient, const LayerCall& call);

// Autograd takes an undefined tensor for a missing input only in this form.
Optional<at::Tensor> optional(const at::Tensor& tensor);

// A Quantized among an autograd node's saved tensors: three of them.
void append(torch::autograd::variable_list& saved, const Quantized& q);
Quantized quantized_at(const torch::autograd::variable_list& saved, std::size_t first, int bits);

}  // namespace lowtide
