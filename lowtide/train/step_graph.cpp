#include "lowtide/train/step_graph.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "lowtide/base/cuda_graphs.h"
#include "lowtide/base/cuda_stream.h"
#include "lowtide/base/error.h"
#include "lowtide/nn/quant_layer.h"

namespace lowtide {
namespace {

// How a number of bits is stored; kernels differ by that and by nothing else.
char storage_of(int bits) { return is_float_bits(bits) ? 'f' : fits_bytes(bits) ? 'b' : 'i'; }

std::uint8_t stored_bits(int bits) { return static_cast<std::uint8_t>(is_float_bits(bits) ? 0 : bits); }

}  // namespace

struct StepGraph::State {
  Execution& execution;
  std::vector<QuantLayer*> layers;
  torch::Tensor memory;
  CudaGraphs graphs;  // by the batch's shape and how codes are stored

  StepParameters* on_device() const {
    return reinterpret_cast<StepParameters*>(memory.data_ptr<std::uint8_t>());
  }

  // Writes what the step reads, and returns how its codes are stored.
  std::string write_parameters(double rate) const {
    StepParameters p;
    p.step = execution.step;
    p.rate = rate;
    std::string storage;
    for (const QuantLayer* layer : layers) {
      const Bits bits = layer->bits();
      p.forward_bits[layer->id()] = stored_bits(bits.forward);
      p.backward_bits[layer->id()] = stored_bits(bits.backward);
      storage += {storage_of(bits.forward), storage_of(bits.backward)};
    }
    if constexpr (kWithCuda) write_step_parameters(p, on_device(), current_cuda_stream());
    return storage;
  }
};

StepGraph::StepGraph(torch::nn::Module& model, Execution& execution, const torch::Device& device) {
  if (!is_possible(execution, device)) return;
  const auto options = torch::TensorOptions(torch::kByte).device(device);
  state_.reset(new State{.execution = execution,
                         .layers = quant_layers(model),
                         .memory = torch::zeros({static_cast<std::int64_t>(sizeof(StepParameters))}, options),
                         .graphs = CudaGraphs(device)});
  for (const QuantLayer* layer : state_->layers)
    LOWTIDE_CHECK(layer->id() < StepParameters::kLayers,
                  "a model of more layers than a captured step has bits for");
  execution.on_device = state_->on_device();
}

StepGraph::~StepGraph() {
  if (state_) state_->execution.on_device = nullptr;
}

bool StepGraph::is_possible(const Execution& execution, const torch::Device& device) {
  return device.is_cuda() && execution.engine->is_capturable();
}

void StepGraph::run(double rate, const std::function<void()>& work, std::int64_t shape) {
  if (!state_) return work();
  const std::string storage = state_->write_parameters(rate);
  if (state_->execution.listener || state_->execution.engine_of) return work();  // it is watched
  state_->graphs.run(fmt::format("{} {}", shape, storage), work);
}

const StepParameters* StepGraph::parameters() const { return state_ ? state_->on_device() : nullptr; }
std::int64_t StepGraph::captures() const { return state_ ? state_->graphs.captures() : 0; }
std::int64_t StepGraph::kernels() const { return state_ ? state_->graphs.kernels() : 0; }

}  // namespace lowtide
