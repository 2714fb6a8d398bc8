#pragma once

#include "bench/cuda_kernels/conv_case.h"
#include "lowtide/engine/cuda/depthwise.h"

namespace lowtide::cuda::bench {

inline ConvGeometry depthwise_geometry(int images, int rows, int cols, int channels, int stride, int pad) {
  ConvGeometry g;
  g.images = images;
  g.height = rows;
  g.width = cols;
  g.inputs = g.outputs = channels;
  g.kernel_rows = g.kernel_cols = 3;
  g.stride_rows = g.stride_cols = stride;
  g.pad_rows = g.pad_cols = pad;
  g.rows = (rows + 2 * pad - 3) / stride + 1;
  g.cols = (cols + 2 * pad - 3) / stride + 1;
  g.depthwise = true;
  return g;
}

struct DepthwiseCase {
  ConvGeometry g;
  int bits, top;
  float x_scale, x_offset, e_scale, e_offset;
  std::size_t channels, inputs, outputs;  // numbers
  std::vector<std::uint8_t> x_host, e_host;
  std::vector<float> w_host, producer_host, mean_host, factor_host, bias_host;
  Buffer<std::uint8_t> x, e, w_code;
  Buffer<float> w, sx, ox, se, oe, w_scale, w_offset;
  Buffer<DepthwiseChannel> channel;
  Buffer<float> y, dx, dw, producer;
  Buffer<float> gamma, beta, running_mean, running_variance, norm, producer_norm, min, range;
  Buffer<float> sums;
  Buffer<std::uint8_t> work, dwork, wwork;  // for many calls
  std::size_t work_bytes, weight_bytes;

  DepthwiseCase(const ConvGeometry& geometry, int of_bits, bool after_relu, Pattern pattern, int calls = 1)
      : g(geometry),
        bits(of_bits),
        top((1 << bits) - 1),
        x_scale(0.013f),
        x_offset(after_relu ? 0.0f : -1.3f),
        e_scale(1e-4f),
        e_offset(-0.0127f),
        channels(static_cast<std::size_t>(g.inputs)),
        inputs(ConvCase::size(g.input_pixels(), g.inputs)),
        outputs(ConvCase::size(g.output_pixels(), g.outputs)),
        x_host(codes_of(pattern, inputs, top, channels)),
        e_host(codes_of(pattern, outputs, top, channels)),
        w_host(normal(channels * 9, 0.3f, 0.02f)),
        producer_host(normal(inputs, 1.0f, 0.2f)),
        mean_host(normal(channels, 0.1f)),
        factor_host(normal(channels, 0.2f, 1)),
        bias_host(normal(channels, 0.3f)),
        x(x_host),
        e(e_host),
        w_code(w_host.size()),
        w(w_host),
        sx(std::vector<float>{x_scale}),
        ox(std::vector<float>{x_offset}),
        se(std::vector<float>{e_scale}),
        oe(std::vector<float>{e_offset}),
        w_scale(channels),
        w_offset(channels),
        channel(channels),
        y(outputs),
        dx(inputs),
        dw(w_host.size()),
        producer(producer_host),
        gamma(normal(channels, 0.2f, 1)),
        beta(normal(channels, 0.2f)),
        running_mean(channels, 0),
        running_variance(channels, 0),
        norm(4 * channels),
        producer_norm(4 * channels),
        min(4),
        range(4),
        sums(4 * channels),
        work(bytes() * static_cast<std::size_t>(calls), 0),
        dwork(bytes() * static_cast<std::size_t>(calls), 0),
        wwork(sum_bytes() * static_cast<std::size_t>(calls), 0),
        work_bytes(bytes()),
        weight_bytes(sum_bytes()) {
    std::vector<float> all(mean_host);
    for (const auto* of : {&factor_host, &bias_host, &factor_host})
      all.insert(all.end(), of->begin(), of->end());
    check(cudaMemcpy(producer_norm.get(), all.data(), all.size() * sizeof(float), cudaMemcpyHostToDevice),
          "copy");
  }
  std::size_t bytes() const { return (statistics_bytes(g.outputs) + 255) / 256 * 256; }
  std::size_t sum_bytes() const { return (depthwise_weight_gradient_work_bytes(g.inputs) + 255) / 256 * 256; }
  void clear(cudaStream_t stream, int calls) const {
    const auto all = static_cast<std::size_t>(calls);
    cudaMemsetAsync(work.get(), 0, work_bytes * all, stream);
    cudaMemsetAsync(dwork.get(), 0, work_bytes * all, stream);
    cudaMemsetAsync(wwork.get(), 0, weight_bytes * all, stream);
  }

  WeightLayer layer() const {
    WeightLayer l;
    l.weight = w.get();
    l.outputs = g.outputs;
    l.kernel_rows = l.kernel_cols = 3;
    l.inputs = 1;
    l.bits = {bits};
    l.code = w_code.get();
    l.scale = w_scale.get();
    l.offset = w_offset.get();
    l.depthwise = channel.get();
    return l;
  }
  Codes xs() const { return {x.get(), sx.get(), ox.get(), {bits}}; }
  Codes es() const { return {e.get(), se.get(), oe.get(), {bits}}; }
  NormConstants constants(const Buffer<float>& of, int number) const {
    float* at = of.get();
    return {.mean = at,
            .factor = at + channels,
            .bias = at + 2 * channels,
            .inverse_deviation = at + 3 * channels,
            .min = min.get() + number,
            .range = range.get() + number};
  }
  OutputArguments output(bool with_statistics, int call) const {
    OutputArguments a{g, xs(), layer(), y.get(), {}};
    if (!with_statistics) return a;
    NormStatistics& s = a.statistics;
    s.work = work.get() + work_bytes * static_cast<std::size_t>(call);
    s.weight = gamma.get();
    s.bias = beta.get();
    s.running_mean = running_mean.get();
    s.running_variance = running_variance.get();
    s.momentum = 0.1;
    s.uses_batch = s.relu = true;
    s.out = constants(norm, 0);
    return a;
  }
  InputGradientArguments gradient(bool with_sums, int call) const {
    InputGradientArguments a;
    a.g = g;
    a.dy = es();
    a.w = layer();
    a.dx = dx.get();
    if (!with_sums) return a;
    NormGradientSums& s = a.sums;
    s.work = dwork.get() + work_bytes * static_cast<std::size_t>(call);
    s.norm = constants(producer_norm, 1);
    s.relu = s.uses_batch = true;
    s.y = producer.get();
    s.weight_gradient = sums.get();
    s.bias_gradient = sums.get() + channels;
    s.gradient_mean = sums.get() + 2 * channels;
    s.slope = sums.get() + 3 * channels;
    return a;
  }
  WeightGradientArguments weight_gradient(int call) const {
    return {.g = g,
            .dy = es(),
            .x = xs(),
            .work = wwork.get() + weight_bytes * static_cast<std::size_t>(call),
            .dw = dw.get()};
  }
};

}  // namespace lowtide::cuda::bench
