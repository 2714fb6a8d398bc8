#include <array>

#include "lowtide/base/torch.h"
#include "lowtide/export/families.h"

namespace lowtide {
namespace {

using Levels = std::array<Value, FeaturePyramidImpl::kLevels>;
using Sizes = std::vector<std::int64_t>;

Value doubled(GraphBuilder& graph, const Value& x) {
  at::Tensor factors = at::ones({4});
  factors.slice(0, 2) *= 2;
  return graph.node("Resize", {x, "", graph.constant(factors, "factors")},
                    {{"mode", std::string("nearest")},
                     {"coordinate_transformation_mode", std::string("asymmetric")},
                     {"nearest_mode", std::string("floor")}});
}

std::array<Value, ResNetTrunk::kGroups> write_trunk(NetworkWriter& writer, const ResNetTrunk& trunk,
                                                    const Value& images) {
  std::array<Value, ResNetTrunk::kGroups> groups;
  Value x = writer.halving_max_pool(writer.trunk(trunk.stem(), images));
  for (std::size_t i = 0; i < groups.size(); ++i) groups[i] = x = writer.trunk(trunk.groups()[i], x);
  return groups;
}

Levels write_pyramid(NetworkWriter& writer, const FeaturePyramidImpl& pyramid,
                     const std::array<Value, ResNetTrunk::kGroups>& groups) {
  constexpr std::size_t kLateral = FeaturePyramidImpl::kLateral;
  GraphBuilder& graph = writer.graph;
  Levels levels;
  Value coarser;
  for (std::size_t i = kLateral; i-- > 0;) {
    Value merged = writer.conv(*pyramid.lateral()[i], groups[i + 1]);
    if (!coarser.empty()) merged = graph.node("Add", {merged, doubled(graph, coarser)});
    levels[i] = writer.conv(*pyramid.output()[i], merged);
    coarser = merged;
  }
  levels[kLateral] = writer.conv(*pyramid.output()[kLateral], groups.back());
  levels[kLateral + 1] = writer.conv(*pyramid.output()[kLateral + 1], graph.node("Relu", {levels[kLateral]}));
  return levels;
}

// items × anchors of all levels × values
Value write_head(NetworkWriter& writer, const DetectionHeadImpl& head, const Levels& levels) {
  GraphBuilder& graph = writer.graph;
  std::vector<Value> of_levels;
  for (Value x : levels) {
    for (const QuantConv2d& conv : head.convolutions()) x = graph.node("Relu", {writer.conv(*conv, x)});
    const Value y = graph.node("Transpose", {writer.conv(*head.output, x)}, {{"perm", Sizes{0, 2, 3, 1}}});
    of_levels.push_back(graph.node("Reshape", {y, graph.integers({0, -1, head.values()})}));
  }
  return graph.node("Concat", of_levels, {{"axis", std::int64_t{1}}});
}

}  // namespace

void write_retinanet(NetworkWriter& writer, const RetinaNet& model) {
  GraphBuilder& graph = writer.graph;
  const Value images = graph.input("images", OnnxType::kFloat, {"items", std::int64_t{3}, "height", "width"});
  const Levels levels = write_pyramid(writer, *model.pyramid(), write_trunk(writer, model.trunk(), images));
  const Value probabilities = graph.node("Sigmoid", {write_head(writer, *model.class_head(), levels)});
  const Value deltas = write_head(writer, *model.box_head(), levels);
  graph.output(probabilities, "probabilities", OnnxType::kFloat,
               {"items", "anchors", model.class_head()->values()});
  graph.output(deltas, "deltas", OnnxType::kFloat, {"items", "anchors", model.box_head()->values()});
}

}  // namespace lowtide
