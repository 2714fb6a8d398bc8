#include <cmath>

#include "lowtide/base/torch.h"
#include "lowtide/export/network_writer.h"

namespace lowtide {
namespace {

using Sizes = std::vector<std::int64_t>;

}  // namespace

Value NetworkWriter::layer_norm(const LayerNormImpl& norm, const std::string& name, const Value& x) {
  graph.enter(name);
  return graph.node("LayerNormalization",
                    {x, graph.constant(norm.weight, "weight"), graph.constant(norm.bias, "bias")},
                    {{"axis", std::int64_t{-1}}, {"epsilon", norm.epsilon()}});
}

Value NetworkWriter::attention(const SelfAttentionImpl& attention, const Value& x, const Value& mask) {
  const std::int64_t heads = attention.options().heads, hidden = attention.options().hidden;
  const std::int64_t units = hidden / heads;
  // From items × length × hidden; a head at a time, transposed or not.
  const auto split_heads = [&](const Value& of_all, const Sizes& order) {
    const Value split = graph.node("Reshape", {of_all, graph.integers({0, 0, heads, units})});
    return graph.node("Transpose", {split}, {{"perm", order}});
  };
  const Value query = split_heads(linear(*attention.query(), x), {0, 2, 1, 3});
  const Value key = split_heads(linear(*attention.key(), x), {0, 2, 3, 1});
  const Value value = split_heads(linear(*attention.value(), x), {0, 2, 1, 3});
  graph.enter(attention.scores()->layer_name());
  const Value factor = graph.number(1 / std::sqrt(static_cast<double>(units)));
  const Value scores = graph.node("Mul", {layers.product(query, key, bits_of(*attention.scores())), factor});
  const Value weights =
      graph.node("Softmax", {graph.node("Add", {scores, mask})}, {{"axis", std::int64_t{-1}}});
  graph.enter(attention.context()->layer_name());
  const Value context = layers.product(weights, value, bits_of(*attention.context()));
  const Value joined = graph.node("Transpose", {context}, {{"perm", Sizes{0, 2, 1, 3}}});
  return linear(*attention.output(), graph.node("Reshape", {joined, graph.integers({0, 0, hidden})}));
}

Value NetworkWriter::gelu(const Value& x) {
  const Value erf = graph.node("Erf", {graph.node("Mul", {x, graph.number(M_SQRT1_2)})});
  const Value half = graph.node("Mul", {x, graph.number(0.5)});
  return graph.node("Mul", {half, graph.node("Add", {erf, graph.number(1)})});
}

Value NetworkWriter::transformer_layer(const TransformerLayerImpl& layer, const std::string& name,
                                       const Value& x, const Value& mask) {
  const auto attend = [&](const Value& in) { return attention(*layer.attention(), in, mask); };
  const auto feed_forward = [&](const Value& in) {
    return linear(*layer.contract(), gelu(linear(*layer.expand(), in)));
  };
  const auto attention_norm = [&](const Value& in) {
    return layer_norm(*layer.attention_norm(), name + ".attention_norm", in);
  };
  const auto output_norm = [&](const Value& in) {
    return layer_norm(*layer.output_norm(), name + ".output_norm", in);
  };
  const auto sum = [&](const Value& a, const Value& b) { return graph.node("Add", {a, b}); };
  if (layer.norm_first()) {
    const Value attended = sum(x, attend(attention_norm(x)));
    return sum(attended, feed_forward(output_norm(attended)));
  }
  const Value attended = attention_norm(sum(x, attend(x)));
  return output_norm(sum(attended, feed_forward(attended)));
}

Value NetworkWriter::first_of(const at::Tensor& table, const std::string& name, const Sizes& axes,
                              const Value& like, std::int64_t dimension) {
  graph.enter(name);
  const Value size = graph.node("Slice", {graph.node("Shape", {like}), graph.integers({dimension}),
                                          graph.integers({dimension + 1}), graph.integers({0})});
  const std::vector<Value> sizes(axes.size(), size);
  const Value ends = axes.size() == 1 ? size : graph.node("Concat", sizes, {{"axis", std::int64_t{0}}});
  return graph.node("Slice", {graph.constant(table, "table"), graph.integers(Sizes(axes.size(), 0)), ends,
                              graph.integers(axes)});
}

}  // namespace lowtide
