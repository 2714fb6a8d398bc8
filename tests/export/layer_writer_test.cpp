// Single layers in both forms against the same formulas written in libtorch's operations, and to the bit against the integer
// engine. Their inputs are given, so that no code can fall another way: what is left are sums of a few hundred floats in another
// order.
#include "lowtide/export/layer_writer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lowtide/engine/engine.h"
#include "lowtide/export/graph_runner.h"
#include "tests/export/onnxruntime.h"
#include "tests/io/scratch.h"
#include "tests/testing.h"

namespace lowtide {
namespace {

using Tensors = std::vector<torch::Tensor>;

constexpr double kTolerance = 1e-5;  // some hundred roundings of 6e-8

Range range_of(float min, float range) { return {torch::full({1}, min), torch::full({1}, range)}; }

// Bits, geometry, ranges and normalisations of every kind; one of the factors is 0.
std::vector<ConvLayer> layers() {
  std::vector<ConvLayer> all;
  for (const int bits : {2, 3, 4, 5, 6, 7, 8, 12, 0}) {
    ConvLayer layer{.weight = normal({6, 4, 3, 3}, 10), .padding = {1, 1}, .input = range_of(-1.3f, 3.7f)};
    layer.bits = bits;
    layer.mean = normal({6}, 17);
    layer.factor = normal({6}, 11);
    layer.factor[2] = 0;
    layer.shift = normal({6}, 12);
    all.push_back(layer);
  }
  all.push_back({.weight = normal({4, 1, 3, 3}, 13),
                 .bias = normal({4}, 14),
                 .stride = {2, 1},
                 .padding = {1, 2},
                 .dilation = {1, 2},
                 .groups = 4,
                 .input = range_of(0, 2),
                 .bits = 8});
  all.push_back({.weight = normal({4, 4, 1, 1}, 15), .input = range_of(0.5f, 2), .bits = 5});
  for (const std::int64_t groups : {2, 4}) {
    for (const int bits : {8, 3}) {
      all.push_back({.weight = normal({4, 4 / groups, 3, 2}, 18),
                     .stride = {1, 2},
                     .padding = {2, 1},
                     .groups = groups,
                     .input = range_of(-0.7f, 2),
                     .bits = bits});
    }
  }
  all.push_back(
      {.weight = torch::zeros({4, 4, 1, 1}), .bias = normal({4}, 16), .input = range_of(-1, 2), .bits = 8});
  return all;
}

torch::Tensor images() { return normal({2, 4, 9, 7}, 1); }

torch::Tensor by_row(const torch::Tensor& values) { return values.view({-1, 1, 1, 1}); }

torch::Tensor by_channel(const torch::Tensor& values) { return values.view({1, -1, 1, 1}); }

torch::Tensor normalised(const ConvLayer& layer, torch::Tensor y) {
  if (layer.mean.defined()) y = y - by_channel(layer.mean);
  return layer.factor.defined() ? y * by_channel(layer.factor) + by_channel(layer.shift) : y;
}

torch::Tensor convolved(const ConvLayer& layer, const torch::Tensor& x, const torch::Tensor& w,
                        const torch::Tensor& bias) {
  return torch::conv2d(x, w, bias, layer.stride, layer.padding, layer.dilation, layer.groups);
}

torch::Tensor evaluated(const ConvLayer& layer) {
  const torch::Tensor x = decode(encode(images(), layer.input, layer.bits));
  const torch::Tensor y = convolved(layer, x, decode(encode_rows(layer.weight, layer.bits)), layer.bias);
  return normalised(layer, y);
}

torch::Tensor by_engine(const ConvLayer& layer) {
  const auto engine = make_engine("integer");
  const Quantized x = encode(images(), layer.input, layer.bits), w = encode_rows(layer.weight, layer.bits);
  ConvShape shape{.stride = layer.stride, .padding = layer.padding, .groups = layer.groups};
  std::copy_n(x.code.sizes().begin(), 4, shape.input.begin());
  std::copy_n(w.code.sizes().begin(), 4, shape.weight.begin());
  const torch::Tensor y = engine->conv2d(x, w, shape);
  return normalised(layer, layer.bias.defined() ? y + by_channel(layer.bias) : y);
}

// Bytes with an integer zero point over a range that holds 0; weights of -127 to 127 times a scale for each channel, biases whole
// numbers of both scales' product.
torch::Tensor with_integers(const ConvLayer& layer) {
  if (layer.bits == 0) return evaluated(layer);
  const double min = layer.input.min.item<float>(), max = min + layer.input.range.item<float>();
  const double low = std::min(min, 0.0), top = (1 << layer.bits) - 1;
  const double scale = (std::max(max, 0.0) - low) / top, zero = std::round(-low / scale);
  const torch::Tensor x = ((images() / scale).round() + zero).clamp(0, top).sub(zero).mul(scale);
  torch::Tensor w = decode(encode_rows(layer.weight, layer.bits));
  torch::Tensor bias = layer.bias;
  if (layer.factor.defined()) {
    w = w * by_row(layer.factor);
    bias = layer.shift - layer.mean * layer.factor;
  }
  const torch::Tensor unit = (w.abs().amax({1, 2, 3}) / 127).clamp_min(1e-8);
  if (bias.defined()) bias = (bias / (unit * scale)).round() * (unit * scale);
  return convolved(layer, x, (w / by_row(unit)).round() * by_row(unit), bias);
}

OnnxGraph graph_of(ExportForm form, const std::vector<ConvLayer>& all) {
  GraphBuilder builder("layers");
  LayerWriter writer(builder, form);
  const Value x = builder.input("x", OnnxType::kFloat, {"items", std::int64_t{4}, "height", "width"});
  for (std::size_t i = 0; i < all.size(); ++i) {
    builder.output(writer.conv(all[i], x), fmt::format("y{}", i), OnnxType::kFloat,
                   {"items", all[i].weight.size(0), "height", "width"});
  }
  return builder.graph();
}

void expect_equal(const Tensors& actual, const std::vector<ConvLayer>& all,
                  const std::function<torch::Tensor(const ConvLayer&)>& expected) {
  ASSERT_EQ(actual.size(), all.size());
  for (std::size_t i = 0; i < all.size(); ++i)
    EXPECT_TRUE(close_to(actual[i], expected(all[i]), kTolerance))
        << "layer " << i << ", " << all[i].bits << " bits";
}

TEST(LayerWriter, WritesConvolutionsAsTheyAreEvaluated) {
  const std::vector<ConvLayer> all = layers();
  const OnnxGraph graph = graph_of(ExportForm::kExact, all);
  expect_equal(GraphRunner(graph)({images()}), all, evaluated);
  if (!has_onnxruntime()) GTEST_SKIP() << "onnxruntime-node is not installed (scripts/setup.sh tests)";
  const ScratchFolder folder;
  expect_equal(run_in_onnxruntime(graph, {images()}, folder.path()), all, evaluated);
}

TEST(LayerWriter, WritesConvolutionsOfIntegers) {
  std::vector<ConvLayer> all = layers();
  std::erase_if(all, [](const ConvLayer& layer) { return layer.bits > 8; });
  const OnnxGraph graph = graph_of(ExportForm::kQdq, all);
  expect_equal(GraphRunner(graph)({images()}), all, with_integers);
  if (!has_onnxruntime()) GTEST_SKIP() << "onnxruntime-node is not installed (scripts/setup.sh tests)";
  const ScratchFolder folder;
  expect_equal(run_in_onnxruntime(graph, {images()}, folder.path()), all, with_integers);
}

TEST(LayerWriter, SumsBytesToTheBitsOfTheIntegerEngine) {
  std::vector<ConvLayer> all = layers();
  std::erase_if(all, [](const ConvLayer& layer) { return !layer.sums_integers(); });
  ASSERT_GT(all.size(), 10u);
  const OnnxGraph graph = graph_of(ExportForm::kExact, all);
  const auto expect_same = [&](const Tensors& actual) {
    ASSERT_EQ(actual.size(), all.size());
    for (std::size_t i = 0; i < all.size(); ++i)
      EXPECT_TRUE(same(actual[i], by_engine(all[i]))) << "layer " << i << ", " << all[i].bits << " bits";
  };
  expect_same(GraphRunner(graph)({images()}));
  if (!has_onnxruntime()) GTEST_SKIP() << "onnxruntime-node is not installed (scripts/setup.sh tests)";
  const ScratchFolder folder;
  expect_same(run_in_onnxruntime(graph, {images()}, folder.path()));
}

// Of 8 bits and fewer on ranges that begin at 0, before and after; of more bits and more terms than integers are summed of.
TEST(LayerWriter, WritesLinearLayersAsTheyAreEvaluated) {
  const std::int64_t inputs = 37, many = 33'026;
  std::vector<LinearLayer> all;
  for (const int bits : {8, 5, 2, 12, 0}) {
    for (const float min : {0.0f, -1.3f, 0.4f})
      all.push_back({normal({5, inputs}, 20), normal({5}, 21), range_of(min, 3), bits});
  }
  all.push_back({normal({5, many}, 22), {}, range_of(-1, 3), 8});
  const Tensors given{normal({2, 3, inputs}, 23), normal({2, many}, 24)};
  const auto input_of = [&](const LinearLayer& layer) { return layer.weight.size(1) == inputs ? 0 : 1; };
  GraphBuilder builder("linear");
  LayerWriter writer(builder, ExportForm::kExact);
  const std::array<Value, 2> x{builder.input("x", OnnxType::kFloat, {"items", std::int64_t{3}, inputs}),
                               builder.input("long", OnnxType::kFloat, {"items", many})};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const int from = input_of(all[i]);
    std::vector<OnnxDimension> shape{"items", std::int64_t{3}, std::int64_t{5}};
    if (from == 1) shape.erase(shape.begin() + 1);
    builder.output(writer.linear(all[i], x[from]), fmt::format("y{}", i), OnnxType::kFloat, shape);
  }
  const auto engine = make_engine("integer");
  const auto expect_evaluated = [&](const Tensors& actual) {
    ASSERT_EQ(actual.size(), all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      const LinearLayer& layer = all[i];
      const torch::Tensor rows = given[input_of(layer)].reshape({-1, layer.weight.size(1)});
      const torch::Tensor bias =
          layer.bias.defined()
              ? decode(encode(layer.bias, measure_range(layer.bias, RangeGroup::kTensor), layer.bits))
              : torch::Tensor();
      const torch::Tensor expected =
          engine->linear(encode(rows, layer.input, layer.bits), encode_rows(layer.weight, layer.bits), bias);
      const double tolerance = layer.sums_integers() ? 0 : kTolerance;
      EXPECT_TRUE(close_to(actual[i].view({-1, 5}), expected, tolerance))
          << i << ", " << layer.bits << " bits";
    }
  };
  expect_evaluated(GraphRunner(builder.graph())(given));
  if (!has_onnxruntime()) GTEST_SKIP() << "onnxruntime-node is not installed (scripts/setup.sh tests)";
  const ScratchFolder folder;
  expect_evaluated(run_in_onnxruntime(builder.graph(), given, folder.path()));
}

TEST(LayerWriter, StoresCodesAsBytes) {
  const std::vector<ConvLayer> all{layers()[3]};
  for (const auto& [form, type] :
       {std::pair{ExportForm::kExact, OnnxType::kUint8}, {ExportForm::kQdq, OnnxType::kInt8}}) {
    std::int64_t codes = 0;
    for (const OnnxTensor& constant : graph_of(form, all).constants) {
      const auto elements = static_cast<std::int64_t>(constant.bytes.size());
      if (constant.type == type && constant.shape.size() == 4 && constant.shape[0] != 1) codes += elements;
      if (constant.type == OnnxType::kFloat) {
        EXPECT_LE(elements, 6 * 9 * 4) << constant.name;  // Σ qw at each tap
      }
    }
    EXPECT_EQ(codes, all[0].weight.numel());
  }
}

TEST(GraphBuilder, WritesNothingTwice) {
  GraphBuilder builder("twice");
  const Value x = builder.input("x", OnnxType::kFloat, {"n"});
  builder.enter("layer");
  const Value a = builder.node("Add", {x, builder.number(2)});
  EXPECT_EQ(builder.node("Add", {x, builder.number(2)}), a);
  EXPECT_NE(builder.node("Add", {x, builder.number(3)}), a);
  EXPECT_NE(builder.node("Sub", {x, builder.number(2)}), a);
  EXPECT_NE(builder.integers({2}), builder.number(2));
  EXPECT_EQ(builder.graph().nodes.size(), 3u);
  EXPECT_EQ(builder.graph().constants.size(), 3u);
}

TEST(GraphBuilder, WritesOutsideOfABodyWhatItsInputsDoNotDecideOn) {
  GraphBuilder outer("outer");
  const Value x = outer.input("x", OnnxType::kFloat, {"n"});
  GraphBuilder body("body", outer);
  const Value own = body.input("own", OnnxType::kFloat, {"n"});
  const Value doubled = body.node("Mul", {x, body.number(2)});
  body.node("Mul", {body.node("Add", {own, doubled}), body.number(3)});
  EXPECT_EQ(outer.graph().nodes.size(), 1u);
  EXPECT_EQ(outer.graph().constants.size(), 2u);
  EXPECT_EQ(body.graph().nodes.size(), 2u);
  EXPECT_TRUE(body.graph().constants.empty());
}

TEST(GraphRunner, ScansWithValuesFromOutside) {
  // s = s + 3 x of each x; the sums so far are collected.
  GraphBuilder outer("outer");
  const Value start = outer.input("start", OnnxType::kFloat, {std::int64_t{1}});
  const Value xs = outer.input("xs", OnnxType::kFloat, {"n", std::int64_t{1}});
  const Value three = outer.number(3);
  GraphBuilder body("body", outer);
  const Value before = body.input("before", OnnxType::kFloat, {std::int64_t{1}});
  const Value x = body.input("one", OnnxType::kFloat, {std::int64_t{1}});
  const Value sum = body.node("Add", {before, body.node("Mul", {x, three})});
  body.output(sum, "after", OnnxType::kFloat, {std::int64_t{1}});
  body.output(sum, "collected", OnnxType::kFloat, {std::int64_t{1}});
  const std::vector<Value> out = outer.nodes(
      "Scan", {start, xs},
      {{"body", std::make_shared<const OnnxGraph>(body.graph())}, {"num_scan_inputs", std::int64_t{1}}}, 2);
  outer.output(out[0], "last", OnnxType::kFloat, {std::int64_t{1}});
  outer.output(out[1], "all", OnnxType::kFloat, {"n", std::int64_t{1}});
  const Tensors result =
      GraphRunner(outer.graph())({torch::ones({1}), torch::tensor({1.0f, 2.0f, 4.0f}).view({3, 1})});
  EXPECT_TRUE(same(result[0], torch::tensor({22.0f})));
  EXPECT_TRUE(same(result[1], torch::tensor({4.0f, 10.0f, 22.0f}).view({3, 1})));
}

}  // namespace
}  // namespace lowtide
