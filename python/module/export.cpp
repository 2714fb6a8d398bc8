#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "lowtide/export/graph_runner.h"
#include "lowtide/export/layer_writer.h"
#include "lowtide/io/file.h"
#include "python/module/bind.h"

namespace lowtide::python {
namespace {

namespace py = pybind11;

using Pair = std::array<std::int64_t, 2>;
using Attribute = std::variant<std::int64_t, double, std::string, std::vector<std::int64_t>>;

at::Tensor or_undefined(const std::optional<at::Tensor>& tensor) { return tensor.value_or(at::Tensor()); }

Range range_of(const std::pair<at::Tensor, at::Tensor>& range) { return {range.first, range.second}; }

Value node(GraphBuilder& graph, const std::string& op, const std::vector<Value>& inputs,
           const std::map<std::string, Attribute>& given) {
  std::vector<OnnxAttribute> attributes;
  for (const auto& [name, value] : given) {
    OnnxAttribute attribute{name, {}};
    std::visit([&](const auto& one) { attribute.value = one; }, value);
    attributes.push_back(std::move(attribute));
  }
  return graph.node(op, inputs, attributes);
}

Value conv(LayerWriter& writer, const Value& x, const at::Tensor& weight,
           const std::optional<at::Tensor>& bias,
           const std::optional<std::pair<at::Tensor, at::Tensor>>& norm, const Pair& stride,
           const Pair& padding, const Pair& dilation, std::int64_t groups,
           const std::pair<at::Tensor, at::Tensor>& range, int bits) {
  ConvLayer layer{.weight = weight,
                  .bias = or_undefined(bias),
                  .stride = stride,
                  .padding = padding,
                  .dilation = dilation,
                  .groups = groups,
                  .input = range_of(range),
                  .bits = bits};
  if (norm) std::tie(layer.factor, layer.shift) = *norm;
  return writer.conv(layer, x);
}

Value linear(LayerWriter& writer, const Value& x, const at::Tensor& weight,
             const std::optional<at::Tensor>& bias, const std::pair<at::Tensor, at::Tensor>& range,
             int bits) {
  return writer.linear({weight, or_undefined(bias), range_of(range), bits}, x);
}

auto lstm(LayerWriter& writer, const Value& x, const at::Tensor& input_weight,
          const at::Tensor& hidden_weight, const at::Tensor& bias, const std::pair<Value, Value>& state,
          const std::pair<at::Tensor, at::Tensor>& input_range,
          const std::pair<at::Tensor, at::Tensor>& hidden_range, int bits) {
  const LayerWriter::LstmValues values =
      writer.lstm({input_weight, hidden_weight, bias, range_of(input_range), range_of(hidden_range), bits}, x,
                  state.first, state.second);
  return std::tuple(values.hidden, values.last_hidden, values.last_cell);
}

}  // namespace

void bind_export(py::module_& module) {
  py::class_<GraphBuilder>(module, "GraphBuilder")
      .def(py::init<std::string>())
      .def("enter", &GraphBuilder::enter)
      .def("input",
           [](GraphBuilder& graph, const std::string& name, const at::Tensor& like,
              std::vector<OnnxDimension> shape) {
             return graph.input(name, onnx_type(like), std::move(shape));
           })
      .def("output",
           [](GraphBuilder& graph, const Value& value, const std::string& name, const at::Tensor& like,
              std::vector<OnnxDimension> shape) {
             graph.output(value, name, onnx_type(like), std::move(shape));
           })
      .def("constant", &GraphBuilder::constant)
      .def("number", &GraphBuilder::number)
      .def("integers", &GraphBuilder::integers)
      .def("node", &node)
      .def("write", [](const GraphBuilder& graph, const std::string& path,
                       const std::map<std::string, std::string>& metadata) {
        write_atomically(path, std::string_view(serialise(graph.graph(), metadata)));
      });
  py::class_<LayerWriter>(module, "LayerWriter")
      .def(py::init([](GraphBuilder& graph, bool exact) {
             return LayerWriter(graph, exact ? ExportForm::kExact : ExportForm::kQdq);
           }),
           py::keep_alive<1, 2>())
      .def("conv", &conv)
      .def("linear", &linear)
      .def("lstm", &lstm)
      .def("product", &LayerWriter::product);
  py::class_<GraphRunner>(module, "GraphRunner")
      .def(py::init([](const GraphBuilder& graph) { return GraphRunner(graph.graph()); }))
      .def("__call__", &GraphRunner::operator(), py::call_guard<py::gil_scoped_release>());
}

}  // namespace lowtide::python
