// The CUDA engine's kernels by themselves, without torch: each is compared with the same in double precision, then
// timed on the shapes of CIFAR's and ImageNet's networks, as nodes of a graph; with the argument `check` not timed,
// with `depthwise` only depthwise convolutions.
//     nvcc -std=c++20 -gencode arch=compute_90a,code=sm_90a -I. bench/cuda_kernels/*.cu
//       lowtide/{engine/cuda,base}/*.cu -o cuda_kernels
#include <cstdio>
#include <string>

#include "bench/cuda_kernels/subjects.h"
#include "bench/gpu_checks.h"

using namespace lowtide::cuda::bench;  // NOLINT

int main(int argc, char** argv) {
  const std::string asked = argc > 1 ? argv[1] : "";
  if (asked != "depthwise") check_convs();
  check_depthwise();
  if (asked == "") time_convs();
  if (asked != "check") time_depthwise();
  std::printf("%s\n", failed ? "SOMETHING DIFFERS" : "all agree");
  return failed ? 1 : 0;
}
