#pragma once

#include "lowtide/quant/quantizer.h"

namespace lowtide {

// How the gradient at a layer's output is quantised before it is multiplied.
struct ErrorFormat {
  DeviceBits bits = 0;
  Noise noise = Noise::none();
  bool bifurcate = false;  // the weight gradient's error stays float (Banner et al. 2018, section 5)

  ChunkEncoder::Format codes() const { return {bits, noise}; }
  // Whether it becomes codes of a byte and nothing else, with noise that a kernel can draw.
  bool is_bytes() const { return !bifurcate && codes().fits(); }
};

// The error that feeds a layer's two gradients: the gradient at its output, quantised.
struct LayerError {
  Quantized for_input;
  Quantized for_weight;  // the float gradient itself where the format bifurcates
};

// Quantises a gradient that exists as floats; nothing else does. Without a `range` one is measured, over the whole tensor.
LayerError quantise_error(const at::Tensor& gradient, const ErrorFormat& format, const Range& range = {});

}  // namespace lowtide
