#include "lowtide/export/layer_writer.h"

namespace lowtide {

// A step in time, as the body of a Scan: from the state and the input's part of the gates to the next state, twice the hidden
// one, which is collected too.
std::shared_ptr<const OnnxGraph> LayerWriter::lstm_step(const LstmLayer& layer) {
  const std::int64_t units = layer.hidden_weight.size(1);
  const std::string name = graph_.layer() + "/step";
  GraphBuilder step(name, graph_);
  step.enter(name);
  const auto input = [&](const char* part, std::int64_t columns) {
    return step.input(name + "/" + part, OnnxType::kFloat, {"items", columns});
  };
  const Value hidden = input("hidden_before", units), cell = input("cell_before", units);
  const Value from_input = input("from_input", 4 * units);
  const Value recurrent =
      LayerWriter(step, form_).linear({layer.hidden_weight, {}, layer.hidden, layer.bits}, hidden);
  const Value sums = step.node("Add", {from_input, recurrent});
  const std::vector<Value> gates = step.nodes("Split", {sums}, {{"axis", std::int64_t{1}}}, 4);
  const auto sigmoid = [&](const Value& x) { return step.node("Sigmoid", {x}); };
  const auto tanh = [&](const Value& x) { return step.node("Tanh", {x}); };
  const auto product = [&](const Value& a, const Value& b) { return step.node("Mul", {a, b}); };
  const Value next_cell =
      step.node("Add", {product(sigmoid(gates[1]), cell), product(sigmoid(gates[0]), tanh(gates[2]))});
  const Value next_hidden = product(sigmoid(gates[3]), tanh(next_cell));
  const auto output = [&](const Value& value, const char* part) {
    step.output(value, name + "/" + part, OnnxType::kFloat, {"items", units});
  };
  output(next_hidden, "hidden");
  output(next_cell, "cell");
  output(next_hidden, "collected");
  return std::make_shared<const OnnxGraph>(step.graph());
}

LayerWriter::LstmValues LayerWriter::lstm(const LstmLayer& layer, const Value& x, const Value& hidden,
                                          const Value& cell) {
  const Value from_input = linear({layer.input_weight, layer.bias, layer.input, layer.bits}, x);
  const std::vector<Value> outputs =
      graph_.nodes("Scan", {hidden, cell, from_input},
                   {{"body", lstm_step(layer)}, {"num_scan_inputs", std::int64_t{1}}}, 3);
  return {outputs[2], outputs[0], outputs[1]};
}

}  // namespace lowtide
