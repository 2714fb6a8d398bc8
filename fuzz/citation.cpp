#include "lowtide/data/graph/citation.h"

#include <cstddef>
#include <cstdint>

#include "lowtide/base/error.h"

// A zero byte parts NAME.content from NAME.cites.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lowtide;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::size_t middle = std::min(text.find('\0'), text.size());
  const std::string_view cites = text.substr(std::min(middle + 1, text.size()));
  try {
    const Graph graph =
        parse_citation(lines_of_text(text.substr(0, middle), "content"), lines_of_text(cites, "cites"));
    if (static_cast<std::int64_t>(graph.features.dense.size()) != graph.nodes * graph.features.columns)
      __builtin_trap();
    if (undirected(graph.edges).rows() != graph.nodes) __builtin_trap();
  } catch (const UserError&) {
  }
  return 0;
}
