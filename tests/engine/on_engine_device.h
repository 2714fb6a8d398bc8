#pragma once

#include <gtest/gtest.h>
#include <torch/cuda.h>

#include "lowtide/base/cuda_stream.h"
#include "lowtide/engine/engine.h"
#include "lowtide/tasks/setup.h"

namespace lowtide {

// Whether the engine can run here: `cuda` needs a GPU, the others do not.
inline bool can_run(const Engine& engine) { return engine.name() != "cuda" || torch::cuda::is_available(); }

// Where the engine computes.
inline torch::Device device_of(const Engine& engine) {
  return engine.name() == "cuda" ? torch::kCUDA : torch::kCPU;
}

inline Quantized sent_to(const torch::Device& device, const Quantized& q) {
  const auto sent = [&](const torch::Tensor& x) { return x.defined() ? x.to(device) : x; };
  return {sent(q.code), sent(q.scale), sent(q.offset), q.bits};
}

inline Quantized on_device_of(const Engine& engine, const Quantized& q) {
  return sent_to(device_of(engine), q);
}

// Engines, each on its device; and where the build has CUDA, `simulated` on a GPU too.
inline constexpr const char* kSimulatedOnCuda = "simulated_on_cuda";
inline std::vector<std::string> placed_engine_names() {
  std::vector<std::string> names = engine_names();
  if (kWithCuda) names.emplace_back(kSimulatedOnCuda);
  return names;
}

// One of those, with operands and results on the host.
class PlacedEngine {
 public:
  explicit PlacedEngine(const std::string& name)
      : engine_(make_engine(name == kSimulatedOnCuda ? "simulated" : name)),
        device_(name == kSimulatedOnCuda ? torch::kCUDA : device_of(*engine_)) {
    allow_tf32(false);
  }

  bool can_run() const { return device_.is_cpu() || torch::cuda::is_available(); }

  torch::Tensor conv2d(const Quantized& x, const Quantized& w, const ConvShape& shape) const {
    return engine_->conv2d(sent_to(device_, x), sent_to(device_, w), shape).cpu();
  }
  torch::Tensor conv2d_input_gradient(const Quantized& dy, const Quantized& w, const ConvShape& shape) const {
    return engine_->conv2d_input_gradient(sent_to(device_, dy), sent_to(device_, w), shape).cpu();
  }
  torch::Tensor conv2d_weight_gradient(const Quantized& dy, const Quantized& x,
                                       const ConvShape& shape) const {
    return engine_->conv2d_weight_gradient(sent_to(device_, dy), sent_to(device_, x), shape).cpu();
  }

 private:
  std::shared_ptr<const Engine> engine_;
  torch::Device device_;
};

}  // namespace lowtide
