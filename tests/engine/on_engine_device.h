#pragma once

#include <gtest/gtest.h>
#include <torch/cuda.h>

#include "lowtide/engine/engine.h"

namespace lowtide {

// Whether the engine can run here: `cuda` needs a GPU, the others do not.
inline bool can_run(const Engine& engine) { return engine.name() != "cuda" || torch::cuda::is_available(); }

// Where the engine computes.
inline torch::Device device_of(const Engine& engine) {
  return engine.name() == "cuda" ? torch::kCUDA : torch::kCPU;
}

inline Quantized on_device_of(const Engine& engine, const Quantized& q) {
  const auto sent = [&](const torch::Tensor& x) { return x.defined() ? x.to(device_of(engine)) : x; };
  return {sent(q.code), sent(q.scale), sent(q.offset), q.bits};
}

}  // namespace lowtide
