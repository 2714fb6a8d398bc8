#include "lowtide/data/graph/neighbour_sampler.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "lowtide/base/error.h"
#include "lowtide/base/random.h"

namespace lowtide {

NeighbourSampler::NeighbourSampler(const Csr& graph, std::vector<int> fan_out, std::uint64_t seed)
    : graph_(graph), fan_out_(std::move(fan_out)), seed_(seed) {
  LOWTIDE_CHECK(!fan_out_.empty(), "a fan-out for every layer");
  for (const int count : fan_out_) LOWTIDE_CHECK(count >= 1, "a fan-out of neighbours");
  local_.assign(static_cast<std::size_t>(graph.rows()), -1);
}

std::vector<Block> NeighbourSampler::sample(std::int64_t step, std::span<const std::int32_t> nodes) {
  LOWTIDE_CHECK(step >= 0 && step <= std::numeric_limits<std::uint32_t>::max(), "a step has 32 bits");
  std::vector<Block> blocks(fan_out_.size());
  for (std::size_t layer = fan_out_.size(); layer-- > 0;) {
    blocks[layer] = sample_layer(step, layer, nodes);
    nodes = blocks[layer].inputs;
  }
  return blocks;
}

Block NeighbourSampler::sample_layer(std::int64_t step, std::size_t layer,
                                     std::span<const std::int32_t> outputs) {
  Block block;
  block.inputs.assign(outputs.begin(), outputs.end());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    // A node that is there twice is gathered by its first number.
    std::int32_t& number = local_[static_cast<std::size_t>(outputs[i])];
    if (number < 0) number = static_cast<std::int32_t>(i);
  }
  for (const std::int32_t node : outputs) {
    draw(step, layer, node);
    for (const std::int64_t position : chosen_) {
      const std::int32_t neighbour = graph_.row(node)[static_cast<std::size_t>(position)];
      block.edges.indices.push_back(local(neighbour, block));
    }
    block.edges.offsets.push_back(block.edges.entries());
  }
  block.edges.columns = static_cast<std::int64_t>(block.inputs.size());
  for (const std::int32_t node : block.inputs) local_[static_cast<std::size_t>(node)] = -1;
  return block;
}

// Floyd's sample: for j = d − k .. d − 1 a draw from 0 .. j, or j itself where that is taken. Every set of k
// positions out of d is equally likely (Bentley & Floyd, "A sample of brilliance", 1987).
void NeighbourSampler::draw(std::int64_t step, std::size_t layer, std::int32_t node) {
  const auto degree = static_cast<std::int64_t>(graph_.row(node).size());
  const std::int64_t count = fan_out_[layer];
  chosen_.clear();
  if (degree <= count) {
    chosen_.resize(static_cast<std::size_t>(degree));
    std::iota(chosen_.begin(), chosen_.end(), 0);
    return;
  }
  const auto place = static_cast<std::uint64_t>(step) << 32 | static_cast<std::uint32_t>(node);
  RandomStream random(seed_, RandomPurpose::kNeighbours, place, static_cast<std::uint32_t>(layer));
  for (std::int64_t j = degree - count; j < degree; ++j) {
    const std::int64_t drawn = random.below(static_cast<std::uint32_t>(j + 1));
    const auto found = std::lower_bound(chosen_.begin(), chosen_.end(), drawn);
    if (found != chosen_.end() && *found == drawn) {
      chosen_.push_back(j);  // larger than all before
    } else {
      chosen_.insert(found, drawn);
    }
  }
}

std::int32_t NeighbourSampler::local(std::int32_t node, Block& block) {
  std::int32_t& number = local_[static_cast<std::size_t>(node)];
  if (number < 0) {
    number = static_cast<std::int32_t>(block.inputs.size());
    block.inputs.push_back(node);
  }
  return number;
}

}  // namespace lowtide
