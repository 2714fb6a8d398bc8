#include "bench/cuda_kernels/resident_case.h"
#include "bench/cuda_kernels/subjects.h"
#include "bench/cuda_kernels/timing.h"

namespace lowtide::cuda::bench {

namespace {

void time_layer(const std::string& name, const ConvGeometry& g) {
  const ConvCase c(g, 8, true);
  const WeightLayer layer = c.layer();
  encode_weights(&layer, 1, nullptr);
  conv_output(c.output(true), nullptr);
  const std::int64_t n = static_cast<std::int64_t>(g.output_pixels()) * g.outputs;
  const Buffer<std::uint8_t> extremes(kExtremesBytes, 0), code(static_cast<std::size_t>(n)),
      positive(static_cast<std::size_t>(n / 8 + 1));
  const Buffer<float> residual(normal(static_cast<std::size_t>(n))), z(static_cast<std::size_t>(n)), scale(1);
  NormEncodeArguments encode{c.y.get(),     n,   g.outputs,  c.constants(0), true, c.min.get(),
                             c.range.get(), {8}, code.get(), scale.get()};
  NormAddArguments add{c.y.get(),       residual.get(),   n,
                       g.outputs,       c.constants(0),   true,
                       extremes.get(),  z.get(),          positive.get(),
                       c.min.get() + 1, c.range.get() + 1};
  NormGradientArguments gradient;
  gradient.gradient = residual.get();
  gradient.n = n;
  gradient.channels = g.outputs;
  gradient.sums = c.input_gradient(true, false).sums;
  gradient.sums.norm = c.constants(0);
  gradient.sums.y = c.y.get();
  gradient.work = extremes.get();
  gradient.min = c.min.get() + 2;
  gradient.range = c.range.get() + 2;
  gradient.bits = {8};
  gradient.noisy = true;
  gradient.code = code.get();
  gradient.scale = scale.get();
  const double us[] = {
      time_of([&](cudaStream_t s, int) { encode_weights(&layer, 1, s); }),
      time_of([&](cudaStream_t s, int) { conv_output(c.output(true), s); }),
      time_of([&](cudaStream_t s, int) { conv_output(c.output(false), s); }),
      time_of([&](cudaStream_t s, int) { norm_encode(encode, s); }),
      time_of([&](cudaStream_t s, int) { norm_add(add, s); }),
      time_of([&](cudaStream_t s, int) { norm_gradient_range(gradient, s); }),
      time_of([&](cudaStream_t s, int) { norm_gradient_encode(gradient, s); }),
      time_of([&](cudaStream_t s, int) { conv_input_gradient(c.input_gradient(true, true), s); }),
      time_of([&](cudaStream_t s, int) { conv_input_gradient(c.input_gradient(false, false), s); }),
      time_of([&](cudaStream_t s, int) { conv_weight_gradient(c.weight_gradient(), s); })};
  std::printf("%-22s", name.c_str());
  for (const double t : us) std::printf(" %8.2f", t);
  if (stays_resident(g, true)) {
    const ResidentCase r(c, kCalls);
    const auto clear = [&](cudaStream_t s) { r.clear(s, kCalls); };
    std::printf(
        " %8.2f %8.2f %8.2f %8.2f",
        time_of([&](cudaStream_t s, int i) { resident_forward(r.encoding(i), s); }, clear),
        time_of([&](cudaStream_t s, int i) { resident_forward(r.adding(i), s); }, clear),
        time_of([&](cudaStream_t s, int i) { resident_backward(r.backward(i, false, false), s); }, clear),
        time_of([&](cudaStream_t s, int i) { resident_backward(r.backward(i, true, true), s); }, clear));
  }
  std::printf("\n");
  check(cudaDeviceSynchronize(), name.c_str());
}

}  // namespace

void time_convs() {
  std::printf(
      "\nmicroseconds           weights   output  no stat   encode      add   range  codes   dgrad+s    "
      "dgrad    wgrad  stay: encode   add  back  back+residual\n");
  time_layer("stem 3>16 32x32", geometry(128, 32, 3, 16, 3, 1, 1));
  time_layer("16>16 32x32, 128", geometry(128, 32, 16, 16, 3, 1, 1));
  time_layer("16>32/2", geometry(128, 32, 16, 32, 3, 2, 1));
  time_layer("32>32 16x16, 128", geometry(128, 16, 32, 32, 3, 1, 1));
  time_layer("64>64 8x8, 128", geometry(128, 8, 64, 64, 3, 1, 1));
  time_layer("32>64/2", geometry(128, 16, 32, 64, 3, 2, 1));
  time_layer("64>64 56x56, 64", geometry(64, 56, 64, 64, 3, 1, 1));
  time_layer("128>128 28x28, 64", geometry(64, 28, 128, 128, 3, 1, 1));
  time_layer("256>256 14x14, 64", geometry(64, 14, 256, 256, 3, 1, 1));
  time_layer("512>512 7x7, 64", geometry(64, 7, 512, 512, 3, 1, 1));
  time_layer("64>128/2 56x56, 64", geometry(64, 56, 64, 128, 3, 2, 1));
  time_layer("256>64 1x1 56x56, 64", geometry(64, 56, 256, 64, 1, 1, 0));
  time_layer("64>256 1x1 56x56, 64", geometry(64, 56, 64, 256, 1, 1, 0));
  time_layer("512>128 1x1 28x28", geometry(64, 28, 512, 128, 1, 1, 0));
  time_layer("128>512 1x1 28x28", geometry(64, 28, 128, 512, 1, 1, 0));
  time_layer("1024>256 1x1 14x14", geometry(64, 14, 1024, 256, 1, 1, 0));
  time_layer("256>1024 1x1 14x14", geometry(64, 14, 256, 1024, 1, 1, 0));
  time_layer("2048>512 1x1 7x7", geometry(64, 7, 2048, 512, 1, 1, 0));
  time_layer("512>2048 1x1 7x7", geometry(64, 7, 512, 2048, 1, 1, 0));
}

}  // namespace lowtide::cuda::bench
