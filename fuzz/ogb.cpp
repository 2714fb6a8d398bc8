#include <cstddef>
#include <cstdint>

#include "lowtide/base/error.h"
#include "lowtide/data/graph/columns.h"

// The first byte says how many nodes and edges there are to be; the rest is read as each kind of file.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lowtide;
  if (size == 0) return 0;
  const std::vector<std::int64_t> nodes = {data[0] % 16 + 1, 2}, edges = {data[0] / 16, 1};
  const auto source = lines_of_text({reinterpret_cast<const char*>(data) + 1, size - 1}, "input");
  const auto attempt = [](auto parse) {
    try {
      parse();
    } catch (const UserError&) {
    }
  };
  attempt([&] {
    for (const Edge& edge : parse_edges(source, nodes, edges)) {
      if (edge.source < 0 || edge.target < 0 || edge.source >= 16 || edge.target >= 16) __builtin_trap();
    }
  });
  attempt([&] {
    const NodeFeatures features = parse_features(source, nodes[0]);
    if (static_cast<std::int64_t>(features.dense.size()) != nodes[0] * features.columns) __builtin_trap();
  });
  attempt([&] {
    if (static_cast<std::int64_t>(parse_labels(source, nodes[0], "node").size()) != nodes[0])
      __builtin_trap();
  });
  return 0;
}
