#include "lowtide/bench/layer_bench.h"

#include <ATen/Parallel.h>
#include <torch/utils.h>

#include <algorithm>

#include "lowtide/base/scratch.h"
#include "lowtide/base/torch.h"
#include "lowtide/bench/timing.h"
#include "lowtide/engine/integer.h"
#include "lowtide/models/image_model.h"
#include "lowtide/nn/quant_layer.h"

namespace lowtide {
namespace {

double fastest(int repeat, const std::function<void()>& work) {
  work();
  double best = milliseconds_of(work);
  for (int i = 1; i < repeat; ++i) best = std::min(best, milliseconds_of(work));
  return best;
}

// Computes nothing of use: notes the shapes that a model asks for.
class ShapeRecorder final : public Engine {
 public:
  explicit ShapeRecorder(std::vector<ConvShape>& shapes) : shapes_(shapes) {}
  std::string name() const override { return "recorder"; }
  at::Tensor conv2d(const Quantized& x, const Quantized& /*w*/, const ConvShape& shape) const override {
    shapes_.push_back(shape);
    return at::zeros({shape.input[0], shape.weight[0], shape.output_height(), shape.output_width()},
                     x.scale.defined() ? x.scale.options() : x.code.options());
  }
  at::Tensor conv2d_input_gradient(const Quantized& /*dy*/, const Quantized& w,
                                   const ConvShape& shape) const override {
    return at::zeros(shape.input, w.scale.options());
  }
  at::Tensor conv2d_weight_gradient(const Quantized& /*dy*/, const Quantized& x,
                                    const ConvShape& shape) const override {
    return at::zeros(shape.weight, x.scale.options());
  }
  at::Tensor product(const Quantized& a, const Quantized& b, const ProductShape& shape) const override {
    return SimulatedEngine().product(a, b, shape);
  }
  at::Tensor aggregate(const SparseRows& matrix, const Quantized& features) const override {
    return SimulatedEngine().aggregate(matrix, features);
  }

 private:
  std::vector<ConvShape>& shapes_;
};

std::vector<ConvShape> shapes_of(const std::string& name, std::int64_t batch) {
  const ImageModelInfo& info = image_model(name);
  const std::int64_t pixels = std::int64_t{info.input_size} * info.input_size;
  const std::int64_t items =
      info.input_size <= 32 ? batch : std::max<std::int64_t>(16, batch * 32 * 32 / pixels);
  std::vector<ConvShape> shapes;
  const auto model = info.make(3, info.classes);
  const auto execution = std::make_shared<Execution>();
  execution->engine = std::make_shared<ShapeRecorder>(shapes);
  attach_layers(*model, execution, LayerRules());
  model->eval();
  const torch::NoGradGuard no_grad;
  model->forward(torch::zeros({items, 3, info.input_size, info.input_size}));
  return shapes;
}

bool same_shape(const ConvShape& a, const ConvShape& b) {
  return a.input == b.input && a.weight == b.weight && a.stride == b.stride && a.padding == b.padding &&
         a.groups == b.groups;
}

std::vector<LayerTiming> distinct_layers(const LayerBenchOptions& options) {
  std::vector<LayerTiming> layers;
  for (const std::string& model : options.models) {
    for (const ConvShape& shape : shapes_of(model, options.batch)) {
      auto found = std::find_if(layers.begin(), layers.end(),
                                [&](const LayerTiming& layer) { return same_shape(layer.shape, shape); });
      if (found == layers.end()) found = layers.insert(found, {shape, {}, {}});
      if (found->models.empty() || found->models.back() != model) found->models.push_back(model);
    }
  }
  return layers;
}

// Every core multiplies what its nearest cache holds.
double measure_peak() {
  const integer::TileKernels& tiles = integer::tile_kernels(integer::instruction_sets().front());
  constexpr std::int64_t kQuads = 64, kPixels = 16, kRepeat = 10'000;
  constexpr int kVectors = 2;
  const int threads = at::get_num_threads();
  constexpr int kTries = 100;  // some ms each: a few of them may all fall into a slow moment of the machine
  const double milliseconds = fastest(kTries, [&] {
    at::parallel_for(0, threads, 1, [&](std::int64_t begin, std::int64_t end) {
      Scratch<std::int8_t> input;
      Scratch<std::uint8_t> weight;
      Scratch<std::int32_t> sum;
      constexpr std::int64_t kWeightBytes = kQuads * kVectors * integer::kVectorBytes;
      std::fill_n(input.at_least(kQuads * kPixels * 4), kQuads * kPixels * 4, std::int8_t{3});
      std::fill_n(weight.at_least(kWeightBytes), kWeightBytes, std::uint8_t{5});
      const std::int32_t here = 0;
      const integer::TileUse use(tiles);
      for (std::int64_t i = begin * kRepeat; i < end * kRepeat; ++i) {
        tiles.dot_row({.input = input.at_least(0),
                       .weight = weight.at_least(0),
                       .tap = &here,
                       .taps = 1,
                       .quads = kQuads,
                       .layout = tiles.layout(kQuads, kPixels),
                       .sum = sum.at_least(kPixels * kVectors * 16),
                       .pixels = kPixels},
                      kVectors);
      }
    });
  });
  const double products = static_cast<double>(threads) * kRepeat * kQuads * 4 * kPixels * kVectors * 16;
  return products / milliseconds * 1e3;
}

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
    timing.milliseconds = fastest(options.repeat, [&, &compute = product] { compute(integer, codes); });
    timing.fp32_milliseconds =
        fastest(options.repeat, [&, &compute = product] { compute(simulated, floats); });
    timing.peak_share =
        static_cast<double>(shape.macs() * shape.input[0]) / (timing.milliseconds * 1e-3) / peak;
    timing.error = relative_error(product(integer, codes), product(simulated, codes));
    layer.products.push_back(timing);
  }
}

}  // namespace

LayerBench bench_layers(const LayerBenchOptions& options) {
  const torch::NoGradGuard no_grad;
  LayerBench bench{measure_peak(), distinct_layers(options)};
  for (LayerTiming& layer : bench.layers) time_products(layer, options, bench.peak);
  return bench;
}

}  // namespace lowtide
