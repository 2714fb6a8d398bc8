#include "lowtide/base/cuda_graphs.h"

#include <map>
#include <utility>
#include <vector>

#include "lowtide/base/torch_compat.h"
#if defined(LOWTIDE_WITH_CUDA)
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/cuda.h>
#endif

namespace lowtide {

#if defined(LOWTIDE_WITH_CUDA)

namespace {

// Launches as they are before one is captured: libraries load kernels and take memory then.
constexpr int kWarmUps = 2;
// Graphs that are kept, of some thousands of kernels each: sentences have more lengths than it is worth to capture.
constexpr std::int64_t kMostGraphs = 64;

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

// The stream must not go on capturing. What broke the work may have broken the capture as well: then its end throws too.
void end_broken(at::cuda::CUDAGraph& graph) {
  try {
    graph.capture_end();
  } catch (const c10::Error&) {
    return;
  }
}

}  // namespace

struct CudaGraphs::State {
  struct Captured {
    int launches = 0;  // before it was captured
    std::unique_ptr<at::cuda::CUDAGraph> graph;
    std::int64_t kernels = 0;
  };

  std::map<std::string, Captured> graphs;
  at::cuda::MempoolId_t pool{0, 0};  // one for all: no two graphs run at a time
  std::int64_t captures = 0, kernels = 0;

  void capture(Captured& of, const std::function<void()>& work) {
    torch::cuda::synchronize();
    auto graph = make_graph();
    {
      const c10::cuda::CUDAStreamGuard on_its_own(c10::cuda::getStreamFromPool());
      graph->capture_begin(pool, cudaStreamCaptureModeThreadLocal);
      try {
        work();
      } catch (...) {
        end_broken(*graph);
        throw;
      }
      graph->capture_end();
    }
    of.graph = std::move(graph);
    pool = of.graph->pool();
    of.kernels = count_kernels(*of.graph);
    ++captures;
  }
};

CudaGraphs::CudaGraphs(const c10::Device& device) {
  if (device.is_cuda()) state_ = std::make_unique<State>();
}

void CudaGraphs::run(const std::string& key, const std::function<void()>& work) {
  if (!state_) return work();
  State::Captured& captured = state_->graphs[key];
  if (captured.launches++ < kWarmUps) return work();
  if (!captured.graph && state_->captures == kMostGraphs) return work();
  if (!captured.graph) state_->capture(captured, work);
  state_->kernels = captured.kernels;
  captured.graph->replay();
}

std::int64_t CudaGraphs::captures() const { return state_ ? state_->captures : 0; }
std::int64_t CudaGraphs::kernels() const { return state_ ? state_->kernels : 0; }

#else

struct CudaGraphs::State {};

CudaGraphs::CudaGraphs(const c10::Device& /*device*/) {}
void CudaGraphs::run(const std::string& /*key*/, const std::function<void()>& work) { work(); }
std::int64_t CudaGraphs::captures() const { return 0; }
std::int64_t CudaGraphs::kernels() const { return 0; }

#endif

CudaGraphs::~CudaGraphs() = default;

}  // namespace lowtide
