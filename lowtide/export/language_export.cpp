#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "lowtide/base/torch.h"
#include "lowtide/export/families.h"

namespace lowtide {

void write_lstm_language_model(NetworkWriter& writer, const LstmLanguageModel& model) {
  GraphBuilder& graph = writer.graph;
  const Value words = graph.input("words", OnnxType::kInt64, {"length", "items"});
  std::vector<std::pair<std::string, Value>> left;
  graph.enter("embedding");
  Value x = graph.node("Gather", {graph.constant(model.embedding, "table"), words});
  for (std::size_t i = 0; i < model.layers().size(); ++i) {
    const QuantLstm& layer = model.layers()[i];
    const auto state = [&](const char* part) {
      return graph.input(fmt::format("lstm{}.{}", i, part), OnnxType::kFloat,
                         {"items", layer->options.units});
    };
    const Value hidden = state("hidden"), cell = state("cell");
    const LayerWriter::LstmValues y = writer.lstm(*layer, x, hidden, cell);
    x = y.hidden;
    left.emplace_back(hidden, y.last_hidden);
    left.emplace_back(cell, y.last_cell);
  }
  const Value scores = writer.linear(*model.decoder(), x);
  graph.output(scores, "scores", OnnxType::kFloat, {"length", "items", model.embedding.size(0)});
  for (const auto& [name, value] : left)
    graph.output(value, "next." + name, OnnxType::kFloat, {"items", model.embedding.size(1)});
}

void write_transformer_language_model(NetworkWriter& writer, const TransformerLanguageModel& model,
                                      std::int64_t length) {
  using Sizes = std::vector<std::int64_t>;
  GraphBuilder& graph = writer.graph;
  const at::Tensor table = model.embedding()->weight.detach();
  const Value words = graph.input("words", OnnxType::kInt64, {"length", "items"});
  graph.enter("embedding");
  const Value embedded = graph.node(
      "Gather", {graph.constant(table, "table"), graph.node("Transpose", {words}, {{"perm", Sizes{1, 0}}})});
  const Value scaled =
      graph.node("Mul", {embedded, graph.number(std::sqrt(static_cast<double>(table.size(1))))});
  const at::Tensor positions = TransformerLanguageModel::positions(length, table.size(1), table.options());
  Value x = graph.node("Add", {scaled, writer.first_of(positions, "positions", {0}, words, 0)});
  const at::Tensor later =
      at::full({1, 1, length, length}, -std::numeric_limits<float>::infinity(), table.options()).triu_(1);
  const Value mask = writer.first_of(later, "mask", {2, 3}, words, 0);
  for (std::size_t i = 0; i < model.layers().size(); ++i)
    x = writer.transformer_layer(*model.layers()[i], fmt::format("layer{}", i), x, mask);
  const Value normed = writer.layer_norm(*model.norm(), "norm", x);
  const Value scores =
      writer.linear(*model.decoder(), graph.node("Transpose", {normed}, {{"perm", Sizes{1, 0, 2}}}));
  graph.output(scores, "scores", OnnxType::kFloat, {"length", "items", table.size(0)});
}

}  // namespace lowtide
