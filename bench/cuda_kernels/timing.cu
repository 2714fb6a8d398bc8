#include "bench/cuda_kernels/timing.h"
#include "bench/gpu_memory.h"

namespace lowtide::cuda::bench {

double time_of(const std::function<void(cudaStream_t, int)>& call,
               const std::function<void(cudaStream_t)>& before) {
  constexpr int kReplays = 20;
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  check(cudaStreamCreate(&stream), "stream");
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
  if (before) before(stream);
  for (int i = 0; i < kCalls; ++i) call(stream, i);
  check(cudaStreamEndCapture(stream, &graph), "capture");
  check(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
  cudaEvent_t from = nullptr, to = nullptr;
  cudaEventCreate(&from);
  cudaEventCreate(&to);
  for (int i = 0; i < 3; ++i) cudaGraphLaunch(exec, stream);
  cudaEventRecord(from, stream);
  for (int i = 0; i < kReplays; ++i) cudaGraphLaunch(exec, stream);
  cudaEventRecord(to, stream);
  check(cudaStreamSynchronize(stream), "timing");
  float ms = 0;
  cudaEventElapsedTime(&ms, from, to);
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
  return 1000.0 * ms / (kCalls * kReplays);
}

}  // namespace lowtide::cuda::bench
