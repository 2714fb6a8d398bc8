#include "lowtide/train/step_graph.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lowtide/base/cuda_stream.h"
#include "lowtide/base/error.h"
#include "lowtide/base/torch_compat.h"
#include "lowtide/nn/quant_layer.h"
#if defined(LOWTIDE_WITH_CUDA)
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/cuda.h>
#endif

namespace lowtide {

#if defined(LOWTIDE_WITH_CUDA)

namespace {

// Steps that are made as they are before one is captured: libraries load kernels and take memory then.
constexpr int kWarmUpSteps = 2;
// Graphs that are kept, of some thousands of kernels each: sentences have more lengths than it is worth to capture.
constexpr std::int64_t kMostGraphs = 64;

// How a number of bits is stored; kernels differ by that and by nothing else.
char storage_of(int bits) { return is_float_bits(bits) ? 'f' : bits <= kByteBits ? 'b' : 'i'; }

std::int64_t count_kernels([[maybe_unused]] at::cuda::CUDAGraph& graph) {
#if LOWTIDE_GRAPHS_CAN_BE_READ
  std::size_t nodes = 0;
  cudaGraphGetNodes(graph.raw_cuda_graph(), nullptr, &nodes);
  std::vector<cudaGraphNode_t> all(nodes);
  cudaGraphGetNodes(graph.raw_cuda_graph(), all.data(), &nodes);
  std::int64_t kernels = 0;
  for (cudaGraphNode_t node : all) {
    cudaGraphNodeType type{};
    cudaGraphNodeGetType(node, &type);
    if (type == cudaGraphNodeTypeKernel) ++kernels;
  }
  return kernels;
#else
  return 0;
#endif
}

std::unique_ptr<at::cuda::CUDAGraph> make_graph() {
#if LOWTIDE_GRAPHS_CAN_BE_READ
  return std::make_unique<at::cuda::CUDAGraph>(/*keep_graph=*/true);
#else
  return std::make_unique<at::cuda::CUDAGraph>();
#endif
}

}  // namespace

struct StepGraph::State {
  struct Captured {
    int steps = 0;  // made before it was captured
    std::unique_ptr<at::cuda::CUDAGraph> graph;
    std::int64_t kernels = 0;
  };

  Execution& execution;
  torch::Device device;
  std::vector<QuantLayer*> layers;
  torch::Tensor memory;
  std::map<std::pair<std::int64_t, std::string>, Captured>
      graphs;                        // by the batch's shape and how codes are stored
  at::cuda::MempoolId_t pool{0, 0};  // one for all: no two graphs run at a time
  std::int64_t captures = 0, kernels = 0;

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
      p.forward_bits[layer->id()] = static_cast<std::uint8_t>(is_float_bits(bits.forward) ? 0 : bits.forward);
      p.backward_bits[layer->id()] =
          static_cast<std::uint8_t>(is_float_bits(bits.backward) ? 0 : bits.backward);
      storage += {storage_of(bits.forward), storage_of(bits.backward)};
    }
    write_step_parameters(p, on_device(), current_cuda_stream());
    return storage;
  }

  void capture(Captured& of, const std::function<void()>& work) {
    torch::cuda::synchronize();
    of.graph = make_graph();
    {
      const c10::cuda::CUDAStreamGuard on_its_own(c10::cuda::getStreamFromPool());
      of.graph->capture_begin(pool, cudaStreamCaptureModeThreadLocal);
      work();
      of.graph->capture_end();
    }
    pool = of.graph->pool();
    of.kernels = count_kernels(*of.graph);
    ++captures;
  }
};

StepGraph::StepGraph(torch::nn::Module& model, Execution& execution, const torch::Device& device) {
  if (!is_possible(execution, device)) return;
  const auto options = torch::TensorOptions(torch::kByte).device(device);
  state_.reset(new State{execution,
                         device,
                         quant_layers(model),
                         torch::zeros({static_cast<std::int64_t>(sizeof(StepParameters))}, options),
                         {},
                         {0, 0},
                         0,
                         0});
  for (const QuantLayer* layer : state_->layers)
    LOWTIDE_CHECK(layer->id() < StepParameters::kLayers,
                  "a model of more layers than a captured step has bits for");
  execution.on_device = state_->on_device();
}

StepGraph::~StepGraph() {
  if (state_) state_->execution.on_device = nullptr;
}

bool StepGraph::is_possible(const Execution& execution, const torch::Device& device) {
  return device.is_cuda() && execution.engine->name() == "cuda";
}

void StepGraph::run(double rate, const std::function<void()>& work, std::int64_t shape) {
  if (!state_) return work();
  State::Captured& captured = state_->graphs[{shape, state_->write_parameters(rate)}];
  const bool is_watched = state_->execution.listener || state_->execution.engine_of;
  if (is_watched || captured.steps++ < kWarmUpSteps) return work();
  if (!captured.graph && state_->captures == kMostGraphs) return work();
  if (!captured.graph) state_->capture(captured, work);
  state_->kernels = captured.kernels;
  captured.graph->replay();
}

const StepParameters* StepGraph::parameters() const { return state_ ? state_->on_device() : nullptr; }
std::int64_t StepGraph::captures() const { return state_ ? state_->captures : 0; }
std::int64_t StepGraph::kernels() const { return state_ ? state_->kernels : 0; }

#else

struct StepGraph::State {};

StepGraph::StepGraph(torch::nn::Module&, Execution&, const torch::Device&) {}
StepGraph::~StepGraph() = default;
bool StepGraph::is_possible(const Execution&, const torch::Device&) { return false; }
void StepGraph::run(double, const std::function<void()>& work, std::int64_t) { work(); }
const StepParameters* StepGraph::parameters() const { return nullptr; }
std::int64_t StepGraph::captures() const { return 0; }
std::int64_t StepGraph::kernels() const { return 0; }

#endif

}  // namespace lowtide
