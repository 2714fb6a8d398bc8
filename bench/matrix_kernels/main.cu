// The kernels that products of matrices and what stands between them are made of, by themselves, without torch: each is
// compared with the same in double precision, by plain kernels on the GPU, then timed on the shapes of BERT and of
// OGBN-Arxiv's graph, as nodes of a graph; with the argument `check` not timed.
//     nvcc -std=c++20 -gencode arch=compute_90a,code=sm_90a -I. bench/matrix_kernels/*.cu
//       lowtide/engine/cuda/{byte_product,aggregate}.cu lowtide/base/cuda_launch.cu lowtide/quant/quantizer_cuda.cu
//       lowtide/nn/{attention,dropout,layer_norm,row_kernels,tensor_norm}.cu -o matrix_kernels
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "bench/gpu_checks.h"
#include "bench/matrix_kernels/subjects.h"
#include "bench/matrix_kernels/timing.h"
#include "lowtide/engine/cuda/byte_product.h"

using namespace lowtide::cuda;         // NOLINT
using namespace lowtide::cuda::bench;  // NOLINT

// Arguments: `products` or `passes` for these alone, `check` for no times.
int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const auto said = [&](const char* word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  const bool products = !said("passes") && can_multiply_bytes(), passes = !said("products");
  if (!can_multiply_bytes()) std::printf("products of bytes were not compiled for this GPU\n");
  if (products) check_products();
  if (passes) {
    check_codes();
    check_attention();
    check_norms();
    check_rows();
    check_aggregation();
  }
  std::printf("%s\n", failed ? "SOMETHING DIFFERS" : "all agree");
  if (said("check")) return failed ? 1 : 0;
  if (products) time_products();
  if (passes) time_passes();
  std::printf("%-46s %9s %8s %8s\n", "", "us", "TB/s", "TOP/s");
  for (const Timing& t : timings) {
    const double us = microseconds(t);
    std::printf("%-46s %9.2f %8.2f %8.0f\n", t.name.c_str(), us, t.bytes / us * 1e-6,
                t.operations / us * 1e-6);
  }
  return failed ? 1 : 0;
}
