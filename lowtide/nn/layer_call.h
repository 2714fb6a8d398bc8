#pragma once

#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <memory>
#include <optional>

#include "lowtide/base/torch_compat.h"
#include "lowtide/engine/engine.h"
#include "lowtide/nn/norm_kernels.h"
#include "lowtide/schedule/bits.h"

namespace lowtide {

// The error that feeds a layer's two gradients: the gradient at its output, quantised.
struct LayerError {
  Quantized for_input;
  Quantized for_weight;  // the float gradient itself where the call bifurcates
};

// All that a quantised layer's backward pass needs, fixed when the layer was called: the precision in force may have
// changed by then. It serves one backward pass, which gives up the operands as soon as it has used them.
struct LayerCall : torch::CustomClassHolder {
  std::shared_ptr<const Engine> engine;
  Bits bits;
  Noise noise = Noise::none();
  bool bifurcate = false;
  bool recompute = false;
  bool needs_input_gradient = false;
  Range input_range;
  Quantized input, weight;  // the operands of the forward product

  // What whoever computed the gradient at the output knows of it: its range, so that it need not be read for that alone;
  // or its codes, and then `gradient` is a placeholder.
  void announce_error(const at::Tensor& gradient, const Range& range, const Quantized& codes);
  // Set where the codes are all that is wanted of the gradient at the output, and can be made piece by piece.
  std::optional<StretchEncoder::Format> error_format() const;
  LayerError quantise_error(const at::Tensor& output_gradient) const;
  void release();

 private:
  const void* announced_ =
      nullptr;  // the gradient's memory and version: a sum of several gradients is another tensor
  std::int64_t announced_version_ = 0;
  Range announced_range_;
  Quantized announced_codes_;
};

// A convolution's call; its output can be computed again from the operands.
struct ConvCall : LayerCall {
  ConvShape shape;
  at::Tensor bias;                               // undefined without one
  std::unique_ptr<cpu::ChannelMoments> moments;  // of the output, where a normalisation is to be expected

  // Where only pixels so far apart were read (strided_input.h): `shape` and `input` are of these alone.
  std::array<std::int64_t, 2> steps{1, 1};
  std::array<std::int64_t, 4> whole_input{};

  c10::intrusive_ptr<ConvCall> summed_by;  // reads the same input, and sums the gradients of both
  at::Tensor gradient_of_pixels;           // what the other of the two handed over

  at::Tensor output(ImageWatcher* watcher = nullptr) const;
  // Whether whoever needs the output in its backward pass had better compute it again than keep it.
  bool output_is_cheap() const;
};

// Autograd takes an undefined tensor for a missing input only in this form.
Optional<at::Tensor> optional(const at::Tensor& tensor);

}  // namespace lowtide
