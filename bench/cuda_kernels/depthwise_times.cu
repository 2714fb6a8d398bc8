#include "bench/cuda_kernels/depthwise_case.h"
#include "bench/cuda_kernels/subjects.h"
#include "bench/cuda_kernels/timing.h"

namespace lowtide::cuda::bench {

namespace {

// Beside each time the share of 4.2 TB/s that it makes of the bytes which must be read and written: codes once, floats once.
void time_layer(const std::string& name, const ConvGeometry& g) {
  const DepthwiseCase c(g, 8, true, Pattern::kDrawn, kCalls);
  const WeightLayer layer = c.layer();
  encode_depthwise_weights(&layer, 1, nullptr);
  depthwise_output(c.output(true, 0), nullptr);
  depthwise_input_gradient(c.gradient(true, 0), nullptr);
  const auto clear = [&](cudaStream_t s) { c.clear(s, kCalls); };
  const double in = static_cast<double>(c.inputs), out = static_cast<double>(c.outputs);
  const struct {
    double us, bytes;
  } passes[] = {
      {time_of([&](cudaStream_t s, int i) { depthwise_output(c.output(true, i), s); }, clear), in + 4 * out},
      {time_of([&](cudaStream_t s, int) { depthwise_output(c.output(false, 0), s); }), in + 4 * out},
      {time_of([&](cudaStream_t s, int i) { depthwise_input_gradient(c.gradient(true, i), s); }, clear),
       out + 8 * in},
      {time_of([&](cudaStream_t s, int) { depthwise_input_gradient(c.gradient(false, 0), s); }),
       out + 4 * in},
      {time_of([&](cudaStream_t s, int i) { depthwise_weight_gradient(c.weight_gradient(i), s); }, clear),
       in + out}};
  std::printf("%-22s", name.c_str());
  for (const auto& of : passes) std::printf(" %7.2f %4.2f", of.us, of.bytes / 4.2e6 / of.us);
  std::printf("\n");
  check(cudaDeviceSynchronize(), name.c_str());
}

}  // namespace

void time_depthwise() {
  std::printf(
      "\ndepthwise, microseconds      output     no stat.   gradient+s     gradient       weight gradient\n");
  time_layer("32 32x32, 128", depthwise_geometry(128, 32, 32, 32, 1, 1));
  time_layer("96 32x32, 128", depthwise_geometry(128, 32, 32, 96, 1, 1));
  time_layer("144 32x32, 128", depthwise_geometry(128, 32, 32, 144, 1, 1));
  time_layer("144 32x32/2, 128", depthwise_geometry(128, 32, 32, 144, 2, 1));
  time_layer("192 16x16, 128", depthwise_geometry(128, 16, 16, 192, 1, 1));
  time_layer("192 16x16/2, 128", depthwise_geometry(128, 16, 16, 192, 2, 1));
  time_layer("384 8x8, 128", depthwise_geometry(128, 8, 8, 384, 1, 1));
  time_layer("576 8x8, 128", depthwise_geometry(128, 8, 8, 576, 1, 1));
  time_layer("576 8x8/2, 128", depthwise_geometry(128, 8, 8, 576, 2, 1));
  time_layer("960 4x4, 128", depthwise_geometry(128, 4, 4, 960, 1, 1));
}

}  // namespace lowtide::cuda::bench
