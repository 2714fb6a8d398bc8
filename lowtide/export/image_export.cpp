#include "lowtide/export/families.h"

namespace lowtide {

void write_image_model(NetworkWriter& writer, const ImageLayout& layout) {
  GraphBuilder& graph = writer.graph;
  const std::int64_t channels = layout.trunks.at(0).blocks().at(0).stages.at(0).conv->options.in_channels;
  Value x = graph.input("images", OnnxType::kFloat, {"items", channels, "height", "width"});
  for (std::size_t i = 0; i < layout.trunks.size(); ++i) {
    x = writer.trunk(layout.trunks[i], x);
    if (i == 0 && layout.pools_first) x = writer.halving_max_pool(x);
  }
  graph.enter("mean");
  x = graph.node("Flatten", {graph.node("GlobalAveragePool", {x})}, {{"axis", std::int64_t{1}}});
  const Value logits = writer.linear(*layout.classifier, x);
  graph.output(logits, "logits", OnnxType::kFloat, {"items", layout.classifier->options.out_features});
}

}  // namespace lowtide
