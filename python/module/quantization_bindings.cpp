#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "lowtide/cost/summary.h"
#include "python/module/bind.h"
#include "python/module/layer.h"

namespace lowtide::python {
namespace {

namespace py = pybind11;

using Pair = std::array<std::int64_t, 2>;
using BitPair = std::pair<int, int>;

Bits bits_of(BitPair pair) { return {pair.first, pair.second}; }

RangeBuffers buffers(const std::pair<at::Tensor, at::Tensor>& range) { return {range.first, range.second}; }

std::shared_ptr<Quantization> make_quantization(const std::string& engine, const std::string& device,
                                                std::uint64_t seed, const std::vector<std::string>& rules) {
  return std::make_shared<Quantization>(Quantization::Options{engine, device, seed, rules});
}

std::optional<BitPair> overridden(const Quantization& quantization) {
  const std::optional<Bits>& bits = quantization.overridden();
  return bits ? std::optional(BitPair{bits->forward, bits->backward}) : std::nullopt;
}

void override_bits(Quantization& quantization, std::optional<BitPair> bits) {
  quantization.override_bits(bits ? std::optional(bits_of(*bits)) : std::nullopt);
}

// The ledger as `lowtide cost --json` prints it, and the costs relative to fp32.
std::string ledger_json(const Quantization& quantization) {
  const Ledger& ledger = quantization.ledger();
  Json json = ledger.to_json();
  json["relative_cost"] = {{"paper", relative_cost(ledger.paper(), ledger.macs())},
                           {"actual", relative_cost(ledger.actual(), ledger.macs())}};
  return json.dump();
}

using Ranges = std::pair<at::Tensor, at::Tensor>;

at::Tensor conv2d(const Layer& layer, const at::Tensor& x, const at::Tensor& weight,
                  const std::optional<at::Tensor>& bias, const Pair& stride, const Pair& padding,
                  const Pair& dilation, std::int64_t groups, const Ranges& range, bool training) {
  return layer.conv2d(x, weight, bias, {stride, padding, dilation, groups}, buffers(range), training);
}

at::Tensor linear(const Layer& layer, const at::Tensor& x, const at::Tensor& weight,
                  const std::optional<at::Tensor>& bias, bool by_position, const Ranges& range,
                  bool training) {
  return layer.linear(x, weight, bias, by_position, buffers(range), training);
}

auto lstm(const Layer& layer, const at::Tensor& x, const at::Tensor& input_weight,
          const at::Tensor& hidden_weight, const at::Tensor& bias,
          const std::pair<at::Tensor, at::Tensor>& state, const Ranges& input_range,
          const Ranges& hidden_range, bool training) {
  return layer.lstm(x, input_weight, hidden_weight, bias, state.first, state.second, buffers(input_range),
                    buffers(hidden_range), training);
}

}  // namespace

void bind_quantization(py::module_& module) {
  using ReleaseLock = py::call_guard<py::gil_scoped_release>;
  py::class_<Quantization, std::shared_ptr<Quantization>>(module, "Quantization")
      .def(py::init(&make_quantization))
      .def_property_readonly("engine", [](const Quantization& q) { return q.execution().engine->name(); })
      .def_property_readonly("seed", [](const Quantization& q) { return q.execution().seed; })
      .def_property_readonly("rules", &Quantization::rules)
      .def_property_readonly("overridden", &overridden)
      .def("check_rules", &Quantization::check_rules)
      .def("override_bits", &override_bits)
      .def("ledger_json", &ledger_json)
      .def("ledger_table", [](const Quantization& q) { return q.ledger().format_table(); });
  py::class_<Layer, std::shared_ptr<Layer>>(module, "Layer")
      .def(py::init<std::shared_ptr<Quantization>, const std::string&, bool>(), py::arg("quantization"),
           py::arg("name"), py::arg("has_weights"))
      .def_property_readonly("quantization", &Layer::quantization)
      .def_property_readonly("name", &Layer::layer_name)
      .def_property_readonly("precision", [](const Layer& layer) { return to_string(layer.rule()); })
      .def_property_readonly("evaluation_bits",
                             [](const Layer& layer) {
                               return layer.rule().resolve(layer.quantization()->evaluation_bits()).forward;
                             })
      .def("__copy__", [](const Layer& layer) { return std::make_shared<Layer>(layer); })
      .def("__deepcopy__", [](const Layer& layer, const py::dict&) { return std::make_shared<Layer>(layer); })
      .def("conv2d", &conv2d, ReleaseLock())
      .def("linear", &linear, ReleaseLock())
      .def("product", &Layer::product, ReleaseLock())
      .def("lstm", &lstm, ReleaseLock());
}

}  // namespace lowtide::python
