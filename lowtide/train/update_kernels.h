#pragma once

#include <cstdint>
#include <span>

#include "lowtide/quant/step_parameters.h"

// An optimiser's step on plain memory of a GPU: no torch, so that nvcc and the host compiler read it in a moment.
// Every function works through all tensors with a few launches. None waits, none allocates: a step can be
// captured and replayed.

namespace lowtide {

// Tensors are cut into chunks of this many numbers, a block each. Nothing else cuts the sums of a norm.
inline constexpr int kUpdateChunk = 2048;

// A parameter and what belongs to it: n floats each, in the same order.
struct ParameterArrays {
  float* gradient = nullptr;  // all that norms and clipping look at
  float* parameter = nullptr;
  float* state[2] = {};  // SGD: velocity. Adam: first and second moment
  std::int64_t n = 0;
  bool decays = false;

  std::int64_t chunks() const { return (n + kUpdateChunk - 1) / kUpdateChunk; }
};
using ParameterList = std::span<const ParameterArrays>;

// What every optimiser reads on the device.
struct StepControl {
  const bool* halted = nullptr;                // where it is true nothing changes
  double rate = 0;                             // as it was at launch,
  const StepParameters* parameters = nullptr;  // or, where they are given, as it is there
};

struct SgdArguments {
  StepControl control;
  double momentum = 0;
  double decay = 0;  // added to the gradients of those that decay
};

// What depends on Adam's count of steps and on the rate: found once a step, on the device.
struct AdamFactors {
  float rate, correction2, shrinkage;
};

struct AdamArguments {
  StepControl control;
  double beta1 = 0, beta2 = 0, epsilon = 0;
  double decay = 0;
  bool apart = false;              // AdamW: the decay shrinks parameters by itself, at the rate
  std::int64_t* steps = nullptr;   // on the device; goes up by one, unless halted
  AdamFactors* factors = nullptr;  // room on the device for what is read by this step alone
};

struct NormArguments {
  double* partial = nullptr;  // room on the device for a number a chunk
  float* norm = nullptr;      // out
};

struct ClipArguments {
  const float* norm = nullptr;  // of all gradients
  double limit = 0;
};

// `stream` is a cudaStream_t.
struct UpdateKernels {
  // Every number gets the bits that cpu::update gives it.
  void (*sgd)(const SgdArguments& arguments, ParameterList parameters, void* stream);
  void (*adam)(const AdamArguments& arguments, ParameterList parameters, void* stream);
  // The joint norm of all gradients: squares are summed in double, in an order that depends on sizes alone.
  void (*norm)(const NormArguments& arguments, ParameterList parameters, void* stream);
  // Gradients of a larger norm are scaled to the limit; where the norm is not finite they stay as they are.
  void (*clip)(const ClipArguments& arguments, ParameterList parameters, void* stream);
};

extern const UpdateKernels kCudaUpdate;  // only in builds with CUDA

}  // namespace lowtide
