#pragma once

#include "bench/cuda_kernels/conv_case.h"

namespace lowtide::cuda::bench {

// One convolution of images that stay, with the memory of its passes.
struct ResidentCase {
  const ConvCase& c;
  std::int64_t n;
  Buffer<float> y, residual, z, scale, dx;
  Buffer<std::uint8_t> code, sum_code, error_code, positive;
  Buffer<std::uint8_t> work, sums, sum_extremes, error_extremes;  // for many calls
  std::size_t work_bytes;

  explicit ResidentCase(const ConvCase& of, int calls = 1)
      : c(of),
        n(static_cast<std::int64_t>(c.g.output_pixels()) * c.g.outputs),
        y(count()),
        residual(normal(count())),
        z(count()),
        scale(4),
        dx(count()),
        code(count()),
        sum_code(count()),
        error_code(count()),
        positive(count() / 8),
        work(bytes() * static_cast<std::size_t>(calls), 0),
        sums(bytes() * static_cast<std::size_t>(calls), 0),
        sum_extremes(kExtremesBytes * static_cast<std::size_t>(calls), 0),
        error_extremes(kExtremesBytes * static_cast<std::size_t>(calls), 0),
        work_bytes(bytes()) {}

  std::size_t count() const { return static_cast<std::size_t>(n); }
  std::size_t bytes() const { return (statistics_bytes(c.g.outputs) + 255) / 256 * 256; }
  void clear(cudaStream_t stream, int calls) const {
    const auto all = static_cast<std::size_t>(calls);
    cudaMemsetAsync(work.get(), 0, work_bytes * all, stream);
    cudaMemsetAsync(sums.get(), 0, work_bytes * all, stream);
    cudaMemsetAsync(sum_extremes.get(), 0, kExtremesBytes * all, stream);
    cudaMemsetAsync(error_extremes.get(), 0, kExtremesBytes * all, stream);
  }
  OutputArguments output(int call) const {
    OutputArguments a = c.output(true);
    a.y = y.get();
    a.statistics.work = work.get() + work_bytes * static_cast<std::size_t>(call);
    return a;
  }
  NormEncodeArguments encode() const {
    return {.y = y.get(),
            .n = n,
            .channels = c.g.outputs,
            .norm = c.constants(0),
            .relu = true,
            .bits = {c.bits()},
            .code = code.get(),
            .scale = scale.get()};
  }
  NormAddArguments add(int call) const {
    return {.y = y.get(),
            .residual = residual.get(),
            .n = n,
            .channels = c.g.outputs,
            .norm = c.constants(0),
            .relu = true,
            .work = sum_extremes.get() + kExtremesBytes * static_cast<std::size_t>(call),
            .value = z.get(),
            .positive = positive.get(),
            .min = c.min.get() + 1,
            .range = c.range.get() + 1};
  }
  ResidentForwardArguments encoding(int call) const {
    ResidentForwardArguments a;
    a.output = output(call);
    a.encode = encode();
    return a;
  }
  ResidentForwardArguments adding(int call) const {
    ResidentForwardArguments a;
    a.output = output(call);
    a.add = add(call);
    a.reader.bits = {c.bits()};
    a.reader.code = sum_code.get();
    a.reader.scale = scale.get() + 1;
    return a;
  }
  ResidentBackwardArguments backward(int call, bool with_other, bool with_dx) const {
    ResidentBackwardArguments a;
    a.gradient = c.input_gradient(true, with_other);
    a.gradient.dx = with_dx ? dx.get() : nullptr;
    a.gradient.sums.work = sums.get() + work_bytes * static_cast<std::size_t>(call);
    NormGradientArguments& e = a.error;
    e.gradient = dx.get();
    e.n = n;
    e.channels = c.g.inputs;
    e.sums = a.gradient.sums;
    e.work = error_extremes.get() + kExtremesBytes * static_cast<std::size_t>(call);
    e.min = c.min.get() + 2;
    e.range = c.range.get() + 2;
    e.bits = {c.bits()};
    e.noisy = true;
    e.counter = {11, 22, 33, 44, 55};
    e.code = error_code.get();
    e.scale = scale.get() + 2;
    return a;
  }
};

}  // namespace lowtide::cuda::bench
