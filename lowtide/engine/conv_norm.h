#pragma once

#include <ATen/ATen.h>

#include <array>
#include <cstdint>
#include <memory>

#include "lowtide/engine/conv_shape.h"
#include "lowtide/engine/layer_error.h"
#include "lowtide/quant/activation.h"

namespace lowtide {

inline constexpr double kNormEpsilon = 1e-5;

// A batch normalisation's parameters and running statistics, a number a channel each, and how one call uses them.
struct NormParameters {
  at::Tensor weight, bias, running_mean, running_variance;
  bool uses_batch =
      false;  // normalises by the batch's own statistics, which move the running ones; else by those
  double momentum = 0;  // of the running statistics
};

// A convolution's weight in one pass of a trunk: encoded, and whatever else its engine made ready with it.
struct PreparedConv {
  virtual ~PreparedConv() = default;
  Quantized weight;
};

struct ConvWeight {
  at::Tensor weight;
  DeviceBits bits;
  std::int64_t groups = 1;
  std::int64_t stride = 1;
};

// What is convolved and normalised, and what will be asked of it.
struct ConvNormCall {
  Quantized input;
  std::shared_ptr<const PreparedConv> conv;  // as the engine's prepare_convs() made it
  ConvShape shape;
  NormParameters norm;
  bool relu = true;           // after the normalisation, or after the sum with a residual
  bool measures = true;       // ranges will be asked for
  bool keeps = true;          // a backward pass follows
  bool recompute = false;     // for that, the convolution's output is computed again rather than kept
  bool shows_output = false;  // output() will be asked for
};

// A gradient at the same input that another reader of it has computed: at every pixel, or only at those a stride apart,
// from the first on, where that reader is a 1×1 convolution with a stride.
struct OtherGradient {
  at::Tensor value;  // undefined where there is none; may be written over
  std::array<std::int64_t, 2> stride{1, 1};
};

struct NormGradients {
  LayerError error;  // at the convolution's output
  at::Tensor weight, bias;
  at::Tensor residual;  // at what was added, undefined unless asked for
};

// A convolution and the batch normalisation that follows, in one step of training: the passes over memory that a trunk is
// made of. What an engine needs on the way back, it keeps in here; nobody else looks inside. Forward it serves once, by
// encode(), encode_measured() or add(); then backward once.
class ConvNorm {
 public:
  virtual ~ConvNorm() = default;

  // Of the convolution alone, where the call said that it shows it; may be called until encode(), encode_measured() or add().
  virtual const at::Tensor& output() const = 0;

  // After normalisation and ReLU, without a residual.
  virtual Range range() = 0;
  // The codes of that, for the next convolution: by a range that is given, or by its own.
  virtual Quantized encode(const Range& range, DeviceBits bits) = 0;
  virtual MeasuredCodes encode_measured(DeviceBits bits) {
    const Range measured = range();
    return {encode(measured, bits), measured};
  }
  // normalisation + residual (where there is one), then ReLU; with its range where that comes at no cost. `reader`: at how many bits
  // a convolution will read it by its own range, or 0. Its codes may come with it.
  virtual LayerInput add(const at::Tensor& residual, DeviceBits reader) = 0;

  // From the gradient at the result to the error at the convolution's output.
  virtual NormGradients norm_gradient(at::Tensor gradient, const ErrorFormat& format,
                                      bool wants_residual) = 0;
  virtual at::Tensor weight_gradient(const Quantized& error) = 0;
  // Added to `other`. `producer` is what made the input, where that is known: it will be handed this gradient next, and may
  // take the sums that it needs of it while it is computed.
  virtual at::Tensor input_gradient(const Quantized& error, const OtherGradient& other,
                                    ConvNorm* producer) = 0;
  // Both passes at once: the gradient at the input, and from there to the error at the output of the convolution that made it.
  virtual NormGradients producer_gradient(const Quantized& error, const OtherGradient& other,
                                          ConvNorm& producer, const ErrorFormat& format,
                                          bool wants_residual) {
    return producer.norm_gradient(input_gradient(error, other, &producer), format, wants_residual);
  }
};

}  // namespace lowtide
