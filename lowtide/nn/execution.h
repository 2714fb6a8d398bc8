#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lowtide/engine/engine.h"
#include "lowtide/quant/step_parameters.h"
#include "lowtide/schedule/bits.h"

namespace lowtide {

class QuantLayer;

// The step of what is computed between two steps. It has noise of its own, and layers number their calls from 0 again in the
// step that follows.
constexpr std::int64_t kNoStep = -1;

// What a layer tells whoever listens, each time it has computed its output.
struct LayerEvent {
  const std::string& layer;
  const at::Tensor& output;
  std::int64_t macs;  // of this call
};

// The bits of one step: the same for all layers, or with forward bits of their own for some. Made of Bits alone, they are for
// all layers.
struct StepBits : Bits {
  StepBits() = default;
  StepBits(Bits all) : Bits(all) {}  // NOLINT: most schedules know no layers
  StepBits(int all_forward, int all_backward) : Bits{all_forward, all_backward} {}

  std::vector<std::uint8_t> layers;  // forward bits by a layer's id; 0, or beyond the end: those of all

  Bits of(std::uint32_t layer) const {
    const bool is_apart = layer < layers.size() && layers[layer] != 0;
    return is_apart ? Bits{layers[layer], backward} : Bits{*this};
  }
};

// How the layers of one model compute now: the engine, and the precision in force. The training loop sets
// `bits` and `step` once before each step; the layers share this object and read it. Nothing else is global.
struct Execution {
  std::shared_ptr<const Engine> engine;
  StepBits bits;                              // as the schedule says; a layer may have a rule of its own
  std::uint64_t seed = 0;                     // of training, and so of the noise of stochastic rounding
  std::int64_t step = 0;                      // likewise
  std::uint32_t shard = 0;                    // likewise: which part of the batch is computed
  const StepParameters* on_device = nullptr;  // bits and step once more, where captured kernels read them
  bool stochastic = true;                     // gradients are rounded stochastically; else to nearest
  bool bifurcate = false;  // the weight gradient's error stays float (Banner et al. 2018, section 5)
  bool recompute =
      false;  // a convolution's output is not kept for the backward pass but computed again from codes
  bool batch_statistics = false;  // an evaluation normalises and quantises by its own batch, as training does
  std::function<void(const LayerEvent&)>
      listener;  // counts MACs, or looks for the first output that is not finite
  // The engine of a single layer, where somebody wants to see what it multiplies.
  std::function<std::shared_ptr<const Engine>(const QuantLayer&)> engine_of;
};

}  // namespace lowtide
