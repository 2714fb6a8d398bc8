#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lowtide/base/csr.h"

namespace lowtide {

// What one layer of a network computes in a sampled batch: its outputs, one for each row of `edges`, from its
// inputs, one for each column. Inputs and outputs are numbered from 0 within the block, and the first inputs
// are the outputs, in order.
struct Block {
  std::vector<std::int32_t> inputs;  // the nodes of the graph that they stand for
  Csr edges;                         // output → the inputs that it gathers
};

// Draws neighbours for GraphSAGE (Hamilton et al., 2017, algorithm 2). What is drawn for a node depends on
// (seed, step, layer, node) and on nothing else: not on the order of nodes, on other nodes in the batch or on
// threads. One sampler serves one thread; several over one graph give the same.
class NeighbourSampler {
 public:
  // `fan_out`: at most so many neighbours a node, for the first layer, the second and so on. The graph must
  // outlive this.
  NeighbourSampler(const Csr& graph, std::vector<int> fan_out, std::uint64_t seed);

  // A block for each layer, the first layer first; the outputs of the last are `nodes`. Neighbours are drawn
  // without repetition, all of them where a node has no more than the fan-out.
  std::vector<Block> sample(std::int64_t step, std::span<const std::int32_t> nodes);

 private:
  Block sample_layer(std::int64_t step, std::size_t layer, std::span<const std::int32_t> outputs);
  void draw(std::int64_t step, std::size_t layer, std::int32_t node);
  std::int32_t local(std::int32_t node, Block& block);

  const Csr& graph_;
  std::vector<int> fan_out_;
  std::uint64_t seed_;
  std::vector<std::int32_t> local_;   // number of a node in the block at work; −1: not in it
  std::vector<std::int64_t> chosen_;  // positions in the row of the node at work, rising
};

}  // namespace lowtide
