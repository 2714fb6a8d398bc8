#include <fmt/format.h>

#include <limits>

#include "lowtide/base/torch.h"
#include "lowtide/export/families.h"

namespace lowtide {

// Inputs have the names that Hugging Face's tokenizers give them.
void write_bert(NetworkWriter& writer, const BertClassifier& model) {
  GraphBuilder& graph = writer.graph;
  const auto input = [&](const char* name) {
    return graph.input(name, OnnxType::kInt64, {"items", "length"});
  };
  const Value words = input("input_ids"), types = input("token_type_ids"), present = input("attention_mask");
  graph.enter("embedding");
  const auto embed = [&](const torch::nn::Embedding& table, const Value& indices) {
    return graph.node("Gather", {graph.constant(table->weight, "table"), indices});
  };
  const Value sum = graph.node("Add", {embed(model.words(), words), embed(model.types(), types)});
  const Value positions =
      writer.first_of(model.positions()->weight.detach(), "position_embedding", {0}, words, 1);
  Value x = writer.layer_norm(*model.embedding_norm(), "embedding_norm", graph.node("Add", {sum, positions}));
  graph.enter("mask");
  const Value absent = graph.node("Equal", {present, graph.integers({0})});
  const Value penalty =
      graph.node("Where", {absent, graph.number(-std::numeric_limits<double>::infinity()), graph.number(0)});
  const Value mask = graph.node("Reshape", {penalty, graph.integers({0, 1, 1, -1})});
  for (std::size_t i = 0; i < model.layers().size(); ++i)
    x = writer.transformer_layer(*model.layers()[i], fmt::format("layer{}", i), x, mask);
  graph.enter("first");
  const Value first = graph.node("Gather", {x, graph.constant(at::zeros({}, at::kLong), "index")},
                                 {{"axis", std::int64_t{1}}});
  const Value pooled = graph.node("Tanh", {writer.linear(*model.pooler(), first)});
  const Value logits = writer.linear(*model.classifier(), pooled);
  graph.output(logits, "logits", OnnxType::kFloat, {"items", model.classifier()->options.out_features});
}

}  // namespace lowtide
