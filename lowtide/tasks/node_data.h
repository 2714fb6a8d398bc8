#pragma once

#include "lowtide/data/graph/graph.h"
#include "lowtide/data/graph/neighbour_sampler.h"
#include "lowtide/nn/gather.h"
#include "lowtide/recipe/recipe.h"

namespace lowtide {

// The recipe's graph as its network wants it: a row of edges holds the nodes that it gathers from, with self loops for all
// but sage, which sees itself anyway; features made ready; a split. UserError for a recipe and data that do not agree.
Graph open_nodes(const Recipe& recipe);

// The same of a graph that is there.
Graph prepare_graph(Graph graph, const Recipe& recipe);

// All nodes' features.
NodeInput whole_input(const NodeFeatures& features, const at::Device& device);

// Those that a sampled block gathers from.
NodeInput block_input(const NodeFeatures& features, const Block& block, const at::Device& device);

}  // namespace lowtide
