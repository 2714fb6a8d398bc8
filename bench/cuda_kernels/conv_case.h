#pragma once

#include <string>
#include <vector>

#include "bench/cuda_kernels/drawn.h"
#include "bench/gpu_memory.h"
#include "lowtide/engine/cuda/kernels.h"

namespace lowtide::cuda::bench {

inline ConvGeometry geometry(int images, int size, int in, int out, int kernel, int stride, int pad) {
  ConvGeometry g;
  g.images = images;
  g.height = g.width = size;
  g.inputs = in;
  g.outputs = out;
  g.kernel_rows = g.kernel_cols = kernel;
  g.stride_rows = g.stride_cols = stride;
  g.pad_rows = g.pad_cols = pad;
  g.rows = g.cols = (size + 2 * pad - kernel) / stride + 1;
  return g;
}

// One convolution with everything that it needs in device memory.
struct ConvCase {
  ConvGeometry g;
  int top;
  float x_scale, x_offset, e_scale, e_offset;
  std::vector<std::uint8_t> x_host, e_host;
  std::vector<float> w_host, other_host, producer_host;
  Buffer<std::uint8_t> x, e;
  Buffer<float> w, sx, ox, se, oe;
  Buffer<std::uint8_t> w_code;
  Buffer<float> w_scale, w_offset;
  Buffer<std::uint8_t> forward;
  Buffer<int> prefix;
  Buffer<float> tap_value, limb_scale;
  Buffer<std::uint8_t> limbs;
  Buffer<int> limb_sums;
  Buffer<float> y, dx, dw, other, producer;
  Buffer<float> gamma, beta, running_mean, running_variance, mean, factor, bias, inverse, min, range;
  Buffer<float> gm, slope, dgamma, dbeta;
  Buffer<std::uint8_t> work, dwork, wwork, products;

  ConvCase(const ConvGeometry& geometry, int bits, bool after_relu, Pattern pattern = Pattern::kDrawn)
      : g(geometry),
        top((1 << bits) - 1),
        x_scale(0.013f),
        x_offset(after_relu ? 0.0f : -1.3f),
        e_scale(1e-4f),
        e_offset(-0.0127f),
        x_host(codes_of(pattern, size(g.input_pixels(), g.inputs), top, static_cast<std::size_t>(g.inputs))),
        e_host(
            codes_of(pattern, size(g.output_pixels(), g.outputs), top, static_cast<std::size_t>(g.outputs))),
        w_host(normal(size(g.outputs, g.taps() * g.inputs), 0.05f, 0.01f)),
        other_host(normal(size(g.input_pixels(), g.inputs), 0.01f)),
        producer_host(normal(size(g.input_pixels(), g.inputs), 1.0f, 0.2f)),
        x(x_host),
        e(e_host),
        w(w_host),
        sx(std::vector<float>{x_scale}),
        ox(std::vector<float>{x_offset}),
        se(std::vector<float>{e_scale}),
        oe(std::vector<float>{e_offset}),
        w_code(w_host.size()),
        w_scale(static_cast<std::size_t>(g.outputs)),
        w_offset(static_cast<std::size_t>(g.outputs)),
        forward(packed_forward_bytes(g.outputs, g.taps(), g.inputs)),
        prefix(size((g.kernel_rows + 1) * (g.kernel_cols + 1), g.outputs)),
        tap_value(size(g.taps(), g.inputs)),
        limb_scale(1),
        limbs(packed_limb_bytes(g.outputs, g.taps(), g.inputs)),
        limb_sums(size(kLimbs, g.inputs), 0),
        y(size(g.output_pixels(), g.outputs)),
        dx(size(g.input_pixels(), g.inputs)),
        dw(w_host.size()),
        other(other_host),
        producer(producer_host),
        gamma(normal(static_cast<std::size_t>(g.outputs + g.inputs), 0.2f, 1)),
        beta(normal(static_cast<std::size_t>(g.outputs + g.inputs), 0.2f)),
        running_mean(static_cast<std::size_t>(g.outputs), 0),
        running_variance(static_cast<std::size_t>(g.outputs), 0),
        mean(static_cast<std::size_t>(g.outputs + g.inputs)),
        factor(static_cast<std::size_t>(g.outputs + g.inputs)),
        bias(static_cast<std::size_t>(g.outputs + g.inputs)),
        inverse(static_cast<std::size_t>(g.outputs + g.inputs)),
        min(8),
        range(8),
        gm(static_cast<std::size_t>(g.outputs + g.inputs)),
        slope(static_cast<std::size_t>(g.outputs + g.inputs)),
        dgamma(static_cast<std::size_t>(g.outputs + g.inputs)),
        dbeta(static_cast<std::size_t>(g.outputs + g.inputs)),
        work(statistics_bytes(g.outputs), 0),
        dwork(statistics_bytes(g.inputs), 0),
        wwork(weight_gradient_work_bytes(g), 0),
        products(weight_gradient_product_bytes(g)) {}

  static std::size_t size(int a, int b) { return static_cast<std::size_t>(a) * static_cast<std::size_t>(b); }
  int bits() const { return top == 255 ? 8 : top == 7 ? 3 : 4; }

  WeightLayer layer() const {
    WeightLayer l;
    l.weight = w.get();
    l.outputs = g.outputs;
    l.kernel_rows = g.kernel_rows;
    l.kernel_cols = g.kernel_cols;
    l.inputs = g.inputs;
    l.bits = {bits()};
    l.code = w_code.get();
    l.scale = w_scale.get();
    l.offset = w_offset.get();
    l.forward = reinterpret_cast<std::uint32_t*>(forward.get());
    l.tap_prefix = prefix.get();
    l.tap_value = tap_value.get();
    l.limbs = reinterpret_cast<std::uint32_t*>(limbs.get());
    l.limb_scale = limb_scale.get();
    if (may_stay(g.outputs, g.kernel_rows, g.kernel_cols, g.inputs)) l.limb_sums = limb_sums.get();
    return l;
  }
  Codes xs() const { return {x.get(), sx.get(), ox.get(), {bits()}}; }
  Codes es() const { return {e.get(), se.get(), oe.get(), {bits()}}; }
  NormConstants constants(int first) const {
    return {.mean = mean.get() + first,
            .factor = factor.get() + first,
            .bias = bias.get() + first,
            .inverse_deviation = inverse.get() + first,
            .min = min.get(),
            .range = range.get()};
  }
  OutputArguments output(bool statistics) const {
    OutputArguments a{g, xs(), layer(), y.get(), {}};
    if (statistics) {
      a.statistics.work = work.get();
      a.statistics.weight = gamma.get();
      a.statistics.bias = beta.get();
      a.statistics.running_mean = running_mean.get();
      a.statistics.running_variance = running_variance.get();
      a.statistics.momentum = 0.1;
      a.statistics.uses_batch = true;
      a.statistics.relu = true;
      a.statistics.out = constants(0);
    }
    return a;
  }
  InputGradientArguments input_gradient(bool sums, bool with_other) const {
    InputGradientArguments a;
    a.g = g;
    a.dy = es();
    a.w = layer();
    a.dx = dx.get();
    if (with_other) {
      a.other = other.get();
      a.other_rows = g.height;
      a.other_cols = g.width;
    }
    if (sums) {
      a.sums.work = dwork.get();
      a.sums.norm = constants(g.outputs);
      a.sums.relu = true;
      a.sums.uses_batch = true;
      a.sums.y = producer.get();
      a.sums.weight_gradient = dgamma.get();
      a.sums.bias_gradient = dbeta.get();
      a.sums.gradient_mean = gm.get();
      a.sums.slope = slope.get();
    }
    return a;
  }
  WeightGradientArguments weight_gradient() const {
    return {.g = g, .dy = es(), .x = xs(), .work = wwork.get(), .dw = dw.get(), .products = products.get()};
  }
};

}  // namespace lowtide::cuda::bench
