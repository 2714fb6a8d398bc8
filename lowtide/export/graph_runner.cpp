#include "lowtide/export/graph_runner.h"

#include <ATen/ExpandUtils.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

#include "lowtide/base/error.h"

namespace lowtide {
namespace {

using Tensors = std::vector<at::Tensor>;
using Sizes = std::vector<std::int64_t>;
using Known = std::map<std::string, at::Tensor>;

at::ScalarType scalar_type_of(OnnxType type) {
  switch (type) {
    case OnnxType::kFloat:
      return at::kFloat;
    case OnnxType::kUint8:
      return at::kByte;
    case OnnxType::kInt8:
      return at::kChar;
    case OnnxType::kInt32:
      return at::kInt;
    case OnnxType::kInt64:
      return at::kLong;
    case OnnxType::kBool:
      return at::kBool;
    case OnnxType::kDouble:
      return at::kDouble;
  }
  invariant_failed("a type of the format", __FILE__, __LINE__, "");
}

at::Tensor tensor_of(const OnnxTensor& constant) {
  at::Tensor tensor = at::empty(constant.shape, scalar_type_of(constant.type));
  LOWTIDE_CHECK(tensor.nbytes() == constant.bytes.size(), "a constant's bytes are its shape's");
  std::memcpy(tensor.data_ptr(), constant.bytes.data(), constant.bytes.size());
  return tensor;
}

template <typename T>
T attribute(const OnnxNode& node, const std::string& name, T otherwise) {
  const OnnxAttribute* found = node.find(name);
  return found == nullptr ? otherwise : std::get<T>(found->value);
}

Sizes numbers_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  return {flat.data_ptr<std::int64_t>(), flat.data_ptr<std::int64_t>() + flat.numel()};
}

// One value for all, or one for each index of the axis.
at::Tensor along(const at::Tensor& values, const at::Tensor& x, std::int64_t axis) {
  if (values.dim() == 0) return values;
  Sizes shape(static_cast<std::size_t>(x.dim()), 1);
  shape[static_cast<std::size_t>(axis)] = values.numel();
  return values.view(shape);
}

at::Tensor quantize(const OnnxNode&, const Tensors& in) {
  const auto type = in[2].scalar_type();
  const int low = type == at::kChar ? -128 : 0;
  return ((in[0] / in[1]).round() + in[2]).clamp(low, low + 255).to(type);
}

at::Tensor dequantize(const OnnxNode& node, const Tensors& in) {
  const std::int64_t axis = attribute<std::int64_t>(node, "axis", 1);
  const at::Tensor codes = in[0].to(at::kInt) - along(in[2], in[0], axis).to(at::kInt);
  return codes.to(at::kFloat) * along(in[1], in[0], axis);
}

at::Tensor conv(const OnnxNode& node, const Tensors& in) {
  const Sizes pads = attribute<Sizes>(node, "pads", {});
  return at::conv2d(in[0], in[1], in.size() > 2 ? in[2] : at::Tensor(), attribute<Sizes>(node, "strides", {}),
                    Sizes{pads[0], pads[1]}, attribute<Sizes>(node, "dilations", {}),
                    attribute<std::int64_t>(node, "group", 1));
}

// Codes less their zero point. Doubles add up integers exactly, and libtorch has no convolution of integers.
at::Tensor recentred(const Tensors& in, std::size_t code) {
  const at::Tensor values = in[code].to(at::kDouble);
  return in.size() > code + 2 ? values - in[code + 2].to(at::kDouble) : values;
}

at::Tensor conv_integer(const OnnxNode& node, const Tensors& in) {
  return conv(node, {recentred(in, 0), recentred(in, 1)}).to(at::kInt);
}

at::Tensor matmul_integer(const OnnxNode&, const Tensors& in) {
  return at::matmul(recentred(in, 0), recentred(in, 1)).to(at::kInt);
}

at::Tensor max_pool(const OnnxNode& node, const Tensors& in) {
  const Sizes pads = attribute<Sizes>(node, "pads", {});
  return at::max_pool2d(in[0], attribute<Sizes>(node, "kernel_shape", {}),
                        attribute<Sizes>(node, "strides", {}), Sizes{pads[0], pads[1]});
}

// Zeros around the image count, as in libtorch.
at::Tensor average_pool(const OnnxNode& node, const Tensors& in) {
  const Sizes pads = attribute<Sizes>(node, "pads", {});
  return at::avg_pool2d(in[0], attribute<Sizes>(node, "kernel_shape", {}),
                        attribute<Sizes>(node, "strides", {}), Sizes{pads[0], pads[1]});
}

at::Tensor mean(const OnnxNode& node, const Tensors& in) {
  return in[0].mean(attribute<Sizes>(node, "axes", {}), attribute<std::int64_t>(node, "keepdims", 1) != 0);
}

at::Tensor clip(const OnnxNode&, const Tensors& in) { return at::minimum(at::maximum(in[0], in[1]), in[2]); }

// Sizes of 0 are those of x.
at::Tensor reshape(const OnnxNode&, const Tensors& in) {
  Sizes shape = numbers_of(in[1]);
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0) shape[i] = in[0].size(static_cast<std::int64_t>(i));
  }
  return in[0].reshape(shape);
}

// Of x from the first inputs' starts to their ends, along their axes. A step of -1 is written for whole dimensions alone.
at::Tensor slice(const OnnxNode&, const Tensors& in) {
  const Sizes starts = numbers_of(in[1]), ends = numbers_of(in[2]), axes = numbers_of(in[3]);
  const Sizes steps = in.size() > 4 ? numbers_of(in[4]) : Sizes(axes.size(), 1);
  at::Tensor y = in[0];
  for (std::size_t i = 0; i < axes.size(); ++i)
    y = steps[i] == -1 ? y.flip(axes[i]) : y.slice(axes[i], starts[i], ends[i]);
  return y;
}

at::Tensor unsqueeze(const OnnxNode&, const Tensors& in) {
  at::Tensor y = in[0];
  for (const std::int64_t axis : numbers_of(in[1])) y = y.unsqueeze(axis);
  return y;
}

at::Tensor gather(const OnnxNode& node, const Tensors& in) {
  const std::int64_t axis = attribute<std::int64_t>(node, "axis", 0);
  if (in[1].dim() == 0) return in[0].select(axis, in[1].item<std::int64_t>());
  LOWTIDE_CHECK(axis == 0, "rows are gathered");
  return at::embedding(in[0], in[1]);
}

at::Tensor cast(const OnnxNode& node, const Tensors& in) {
  return in[0].to(scalar_type_of(static_cast<OnnxType>(attribute<std::int64_t>(node, "to", 1))));
}

at::Tensor layer_norm(const OnnxNode& node, const Tensors& in) {
  return at::layer_norm(in[0], {in[1].size(0)}, in[1], in[2], attribute<double>(node, "epsilon", 1e-5));
}

at::Tensor shape_of(const OnnxNode&, const Tensors& in) {
  at::Tensor shape = at::empty({in[0].dim()}, at::kLong);
  std::copy(in[0].sizes().begin(), in[0].sizes().end(), shape.data_ptr<std::int64_t>());
  return shape;
}

// To the nearest, by whole factors.
at::Tensor resize(const OnnxNode&, const Tensors& in) {
  const auto scale = [&](std::int64_t i) { return static_cast<std::int64_t>(in[2][i].item<float>()); };
  return at::upsample_nearest2d(in[0], {scale(2) * in[0].size(2), scale(3) * in[0].size(3)});
}

using Operator = std::function<at::Tensor(const OnnxNode&, const Tensors&)>;

const std::map<std::string, Operator>& operators() {
  static const auto plain = [](auto&& function) {
    return [function](const OnnxNode&, const Tensors& in) { return function(in); };
  };
  static const std::map<std::string, Operator> kOperators{
      {"QuantizeLinear", quantize},
      {"DequantizeLinear", dequantize},
      {"Conv", conv},
      {"ConvInteger", conv_integer},
      {"MatMulInteger", matmul_integer},
      {"MaxPool", max_pool},
      {"AveragePool", average_pool},
      {"ReduceMean", mean},
      {"Clip", clip},
      {"Reshape", reshape},
      {"Slice", slice},
      {"Unsqueeze", unsqueeze},
      {"Gather", gather},
      {"LayerNormalization", layer_norm},
      {"Shape", shape_of},
      {"Cast", cast},
      {"Resize", resize},
      {"ConstantOfShape", plain([](const Tensors& in) { return at::zeros(numbers_of(in[0])); })},
      {"Identity", plain([](const Tensors& in) { return in[0]; })},
      {"Relu", plain([](const Tensors& in) { return in[0].relu(); })},
      {"Round", plain([](const Tensors& in) { return in[0].round(); })},
      {"Sqrt", plain([](const Tensors& in) { return in[0].sqrt(); })},
      {"Exp", plain([](const Tensors& in) { return in[0].exp(); })},
      {"Pow", plain([](const Tensors& in) { return in[0].pow(in[1]); })},
      {"Erf", plain([](const Tensors& in) { return in[0].erf(); })},
      {"Tanh", plain([](const Tensors& in) { return in[0].tanh(); })},
      {"Sigmoid", plain([](const Tensors& in) { return in[0].sigmoid(); })},
      {"Add", plain([](const Tensors& in) { return in[0] + in[1]; })},
      {"Sub", plain([](const Tensors& in) { return in[0] - in[1]; })},
      {"Mul", plain([](const Tensors& in) { return in[0] * in[1]; })},
      {"Div", plain([](const Tensors& in) { return in[0] / in[1]; })},
      {"Max", plain([](const Tensors& in) { return at::maximum(in[0], in[1]); })},
      {"Expand", plain([](const Tensors& in) {
         return in[0].expand(at::infer_size(in[0].sizes(), numbers_of(in[1])));
       })},
      {"Equal", plain([](const Tensors& in) { return in[0].eq(in[1]); })},
      {"Not", plain([](const Tensors& in) { return in[0].logical_not(); })},
      {"Where", plain([](const Tensors& in) { return at::where(in[0], in[1], in[2]); })},
      {"MatMul", plain([](const Tensors& in) { return at::matmul(in[0], in[1]); })},
      {"GlobalAveragePool", plain([](const Tensors& in) {
         return in[0].mean({2, 3}, /*keepdim=*/true);
       })},
      {"ReduceMin", plain([](const Tensors& in) { return in[0].amin({-1}, /*keepdim=*/true); })},
      {"ReduceMax", plain([](const Tensors& in) { return in[0].amax({-1}, /*keepdim=*/true); })},
      {"Flatten", plain([](const Tensors& in) { return in[0].flatten(1); })},
      {"Softmax", plain([](const Tensors& in) { return in[0].softmax(-1); })},
      {"Transpose", [](const OnnxNode& node,
                       const Tensors& in) { return in[0].permute(attribute<Sizes>(node, "perm", {})); }},
      {"Concat", [](const OnnxNode& node, const Tensors& in) {
         return at::cat(in, attribute<std::int64_t>(node, "axis", 0));
       }}};
  return kOperators;
}

void run(const OnnxGraph& graph, Known& values);

// The body for every index of the inputs behind the states' first dimension.
Tensors scan(const OnnxNode& node, const Tensors& in, const Known& outer) {
  const auto& body = *attribute<std::shared_ptr<const OnnxGraph>>(node, "body", nullptr);
  const auto scanned = static_cast<std::size_t>(attribute<std::int64_t>(node, "num_scan_inputs", 0));
  const std::size_t states = in.size() - scanned;
  Tensors state(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(states));
  std::vector<Tensors> collected(body.outputs.size() - states);
  for (std::int64_t t = 0; t < in[states].size(0); ++t) {
    Known values = outer;
    for (std::size_t i = 0; i < in.size(); ++i)
      values[body.inputs[i].name] = i < states ? state[i] : in[i][t];
    run(body, values);
    for (std::size_t i = 0; i < body.outputs.size(); ++i) {
      const at::Tensor& output = values.at(body.outputs[i].name);
      if (i < states) {
        state[i] = output;
      } else {
        collected[i - states].push_back(output);
      }
    }
  }
  for (const Tensors& steps : collected) state.push_back(at::stack(steps));
  return state;
}

void run(const OnnxNode& node, Known& values) {
  Tensors in;
  for (const std::string& name : node.inputs) in.push_back(name.empty() ? at::Tensor() : values.at(name));
  if (node.op == "Scan") {
    const Tensors out = scan(node, in, values);
    for (std::size_t i = 0; i < out.size(); ++i) values[node.outputs[i]] = out[i];
  } else if (node.op == "Split") {
    const Tensors out =
        in[0].chunk(static_cast<std::int64_t>(node.outputs.size()), attribute<std::int64_t>(node, "axis", 0));
    for (std::size_t i = 0; i < out.size(); ++i) values[node.outputs[i]] = out[i];
  } else {
    const auto found = operators().find(node.op);
    LOWTIDE_CHECK(found != operators().end(), node.op);
    values[node.outputs[0]] = found->second(node, in);
  }
}

// What a node reads, its body's nodes too.
void add_reads(const OnnxNode& node, std::vector<std::string>& names) {
  names.insert(names.end(), node.inputs.begin(), node.inputs.end());
  if (node.op != "Scan") return;
  for (const OnnxNode& inner : attribute<std::shared_ptr<const OnnxGraph>>(node, "body", nullptr)->nodes)
    add_reads(inner, names);
}

std::vector<std::vector<std::string>> last_readers(const OnnxGraph& graph) {
  std::map<std::string, std::size_t> last;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    std::vector<std::string> names;
    add_reads(graph.nodes[i], names);
    for (const std::string& name : names) last[name] = i;
  }
  std::vector<std::vector<std::string>> result(graph.nodes.size());
  for (const auto& [name, node] : last) result[node].push_back(name);
  return result;
}

void run(const OnnxGraph& graph, Known& values) {
  for (const OnnxTensor& constant : graph.constants) values.emplace(constant.name, tensor_of(constant));
  for (const OnnxNode& node : graph.nodes) run(node, values);
}

}  // namespace

GraphRunner::GraphRunner(OnnxGraph graph) : graph_(std::move(graph)) {
  const at::NoGradGuard no_grad;
  for (const OnnxTensor& constant : graph_.constants) constants_[constant.name] = tensor_of(constant);
  graph_.constants.clear();
  std::vector<OnnxNode> rest;
  for (OnnxNode& node : graph_.nodes) {
    const bool is_constant =
        std::all_of(node.inputs.begin(), node.inputs.end(),
                    [&](const std::string& name) { return name.empty() || constants_.contains(name); });
    if (is_constant) {
      run(node, constants_);
    } else {
      rest.push_back(std::move(node));
    }
  }
  graph_.nodes = std::move(rest);
  last_read_ = last_readers(graph_);
}

std::vector<at::Tensor> GraphRunner::operator()(const std::vector<at::Tensor>& inputs) const {
  LOWTIDE_CHECK(inputs.size() == graph_.inputs.size(), "all inputs of a graph");
  const at::NoGradGuard no_grad;
  Known values = constants_;
  for (std::size_t i = 0; i < inputs.size(); ++i) values[graph_.inputs[i].name] = inputs[i];
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
    run(graph_.nodes[i], values);
    for (const std::string& name : last_read_[i]) values.erase(name);
  }
  std::vector<at::Tensor> outputs;
  for (const OnnxValue& output : graph_.outputs) outputs.push_back(values.at(output.name));
  return outputs;
}

}  // namespace lowtide
