#include "lowtide/bench/layer_bench.h"

#include <torch/utils.h>

#include <functional>
#include <utility>

#include "lowtide/base/torch.h"
#include "lowtide/bench/model_shapes.h"
#include "lowtide/bench/roofline.h"
#include "lowtide/bench/timing.h"
#include "lowtide/engine/integer.h"

namespace lowtide {
namespace {

Quantized quantised(const at::Tensor& values, RangeGroup group, int bits) {
  return encode(values, measure_range(values, group), bits);
}

struct Operands {
  Quantized x, w, dy;
};

Operands operands(const ConvShape& shape, Bits bits) {
  torch::manual_seed(1);
  const std::vector<std::int64_t> output{shape.input[0], shape.weight[0], shape.output_height(),
                                         shape.output_width()};
  return {quantised(torch::relu(torch::randn(shape.input)), RangeGroup::kTensor, bits.forward),
          quantised(torch::randn(shape.weight), RangeGroup::kRow, bits.forward),
          quantised(torch::randn(output), RangeGroup::kTensor, bits.backward)};
}

Quantized as_floats(const Quantized& q) { return {decode(q), {}, {}, 0}; }

double relative_error(const at::Tensor& actual, const at::Tensor& expected) {
  return ((actual - expected).abs().max() / expected.abs().max()).item<double>();
}

using Product = std::function<at::Tensor(const Engine&, const Operands&)>;

void time_products(LayerTiming& layer, const LayerBenchOptions& options, double peak) {
  const ConvShape& shape = layer.shape;
  const IntegerEngine integer;
  const SimulatedEngine simulated;
  const Operands codes = operands(shape, options.bits);
  const Operands floats{as_floats(codes.x), as_floats(codes.w), as_floats(codes.dy)};
  const std::pair<const char*, Product> products[] = {
      {"output", [&](const Engine& e, const Operands& o) { return e.conv2d(o.x, o.w, shape); }},
      {"input gradient",
       [&](const Engine& e, const Operands& o) { return e.conv2d_input_gradient(o.dy, o.w, shape); }},
      {"weight gradient",
       [&](const Engine& e, const Operands& o) { return e.conv2d_weight_gradient(o.dy, o.x, shape); }}};
  for (const auto& [name, product] : products) {
    ProductTiming timing;
    timing.product = name;
    timing.milliseconds =
        fastest(torch::kCPU, options.repeat, [&, &compute = product] { compute(integer, codes); });
    timing.fp32_milliseconds =
        fastest(torch::kCPU, options.repeat, [&, &compute = product] { compute(simulated, floats); });
    timing.peak_share =
        static_cast<double>(shape.macs() * shape.input[0]) / (timing.milliseconds * 1e-3) / peak;
    timing.error = relative_error(product(integer, codes), product(simulated, codes));
    layer.products.push_back(timing);
  }
}

}  // namespace

LayerBench bench_layers(const LayerBenchOptions& options) {
  const torch::NoGradGuard no_grad;
  LayerBench bench{measure_byte_peak(torch::kCPU), {}};
  for (ModelShape& of : model_shapes(options.models, options.batch)) {
    LayerTiming& layer = bench.layers.emplace_back(LayerTiming{of.shape, std::move(of.models), {}});
    time_products(layer, options, bench.peak);
  }
  return bench;
}

}  // namespace lowtide
