#include <algorithm>

#include "bench/matrix_kernels/drawn.h"
#include "bench/matrix_kernels/timing.h"

namespace lowtide::cuda::bench {

// As one of many in a graph, with the fastest of some replays.
double microseconds(const Timing& t) {
  constexpr int kCalls = 12, kReplays = 3;
  cudaStream_t side = nullptr;
  check(cudaStreamCreate(&side), "stream");
  stream = side;
  check(cudaStreamBeginCapture(side, cudaStreamCaptureModeGlobal), "capture");
  for (int i = 0; i < kCalls; ++i) t.launch(i);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  check(cudaStreamEndCapture(side, &graph), "capture");
  check(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
  cudaEvent_t began = nullptr, ended = nullptr;
  cudaEventCreate(&began);
  cudaEventCreate(&ended);
  check(cudaGraphLaunch(exec, side), "replay");
  double best = 1e30;
  for (int i = 0; i < kReplays; ++i) {
    cudaEventRecord(began, side);
    check(cudaGraphLaunch(exec, side), "replay");
    cudaEventRecord(ended, side);
    check(cudaEventSynchronize(ended), "replay");
    float ms = 0;
    cudaEventElapsedTime(&ms, began, ended);
    best = std::min(best, 1e3 * static_cast<double>(ms) / kCalls);
  }
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(side);
  stream = nullptr;
  return best;
}

}  // namespace lowtide::cuda::bench
