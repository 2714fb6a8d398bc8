#include "lowtide/tasks/node_data.h"

#include <fmt/format.h>

#include <charconv>

#include "lowtide/base/error.h"
#include "lowtide/base/torch.h"

namespace lowtide {
namespace {

template <typename T>
bool parse(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

// `asked`: the recipe's node-split.
NodeSplit split_of(const std::string& asked, std::uint64_t seed, const Graph& graph) {
  if (asked == "data") {
    if (!graph.split.empty()) return graph.split;
    throw UserError(
        fmt::format("{}: has no split into training, validation and test nodes; draw one with "
                    "--node-split 0.6:0.2 (shares) or 20:30 (nodes of each class)",
                    graph.place));
  }
  const std::size_t colon = asked.find(':');
  const std::string_view train = std::string_view(asked).substr(0, colon);
  const std::string_view valid = colon == std::string::npos ? "" : std::string_view(asked).substr(colon + 1);
  std::int64_t train_nodes = 0, valid_nodes = 0;
  if (parse(train, train_nodes) && parse(valid, valid_nodes) && train_nodes > 0 && valid_nodes > 0) {
    return split_by_class(graph.labels, graph.classes, train_nodes, valid_nodes, seed);
  }
  double train_share = 0, valid_share = 0;
  if (parse(train, train_share) && parse(valid, valid_share)) {
    return split_by_share(graph.nodes, train_share, valid_share, seed);
  }
  throw UserError(fmt::format(
      "node-split is '{}'; expected data, shares such as 0.6:0.2, or nodes of each class such as 20:30",
      asked));
}

void check_sampling(const Recipe& recipe, const NodeSplit& split) {
  if (recipe.data.fan_out.empty()) return;
  if (recipe.model.name != "sage") {
    throw UserError(
        fmt::format("fan-out is for model sage, model is '{}'; leave it out to train on the whole graph",
                    recipe.model.name));
  }
  if (static_cast<std::int64_t>(recipe.data.fan_out.size()) != recipe.model.layers) {
    throw UserError(fmt::format("fan-out has {} numbers, layers is {}; expected one for each layer",
                                recipe.data.fan_out.size(), recipe.model.layers));
  }
  if (recipe.training.batch > static_cast<std::int64_t>(split.train.size())) {
    throw UserError(fmt::format("batch is {}; expected at most the {} training nodes", recipe.training.batch,
                                split.train.size()));
  }
}

// Rows of a sparse matrix, one below the other.
struct SparsePart {
  Csr pattern;
  std::vector<float> values;
};
SparsePart rows_of(const NodeFeatures& features, std::span<const std::int32_t> nodes) {
  SparsePart part;
  part.pattern.columns = features.columns;
  for (const std::int32_t node : nodes) {
    const auto row = features.sparse.row(node);
    const auto first = features.values.begin() + features.sparse.offsets[static_cast<std::size_t>(node)];
    part.pattern.indices.insert(part.pattern.indices.end(), row.begin(), row.end());
    part.values.insert(part.values.end(), first, first + static_cast<std::ptrdiff_t>(row.size()));
    part.pattern.offsets.push_back(part.pattern.entries());
  }
  return part;
}

}  // namespace

Graph open_nodes(const Recipe& recipe) {
  return prepare_graph(open_graph(recipe.data.format, recipe.data.dir), recipe);
}

Graph prepare_graph(Graph graph, const Recipe& recipe) {
  graph.split = split_of(recipe.data.node_split, recipe.training.seed, graph);
  if (graph.split.train.empty())
    throw UserError(fmt::format("{}: the split has no training nodes", graph.place));
  check_sampling(recipe, graph.split);
  if (recipe.data.node_features == "standardise") standardise(graph.features);
  if (recipe.data.node_features == "normalise") normalise_rows(graph.features);
  // Files list the nodes that an edge leads to; a network gathers from those that it comes from.
  graph.edges = recipe.data.undirected ? undirected(graph.edges) : transposed(graph.edges).rows;
  if (recipe.model.name != "sage") graph.edges = with_self_loops(graph.edges);
  return graph;
}

NodeInput whole_input(const NodeFeatures& features, const at::Device& device) {
  if (features.is_sparse()) {
    return {{}, make_sparse_features(features.sparse, features.values, device), {}};
  }
  const auto rows = static_cast<std::int64_t>(features.dense.size()) / features.columns;
  const at::Tensor there =
      torch::from_blob(const_cast<float*>(features.dense.data()), {rows, features.columns}, torch::kFloat);
  return {there.to(device, /*non_blocking=*/false, /*copy=*/true), {}, {}};
}

NodeInput block_input(const NodeFeatures& features, const Block& block, const at::Device& device) {
  if (features.is_sparse()) {
    const auto own = std::span(block.inputs).first(static_cast<std::size_t>(block.edges.rows()));
    const SparsePart all = rows_of(features, block.inputs), first = rows_of(features, own);
    return {{},
            make_sparse_features(all.pattern, all.values, device),
            make_sparse_features(first.pattern, first.values, device)};
  }
  at::Tensor rows = torch::empty({static_cast<std::int64_t>(block.inputs.size()), features.columns});
  gather_rows(features, block.inputs, rows.data_ptr<float>());
  return {rows.to(device), {}, {}};
}

}  // namespace lowtide
