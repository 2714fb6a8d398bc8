#include "lowtide/data/graph/npz_graph.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "lowtide/base/error.h"
#include "tests/io/zip_files.h"

// An archive with sound arrays of whatever numbers: the input is, array by array, a length and so many bytes.
// A graph that is read is one whose numbers can be used without a look.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lowtide;
  std::vector<std::pair<std::string, std::string>> files;
  for (const char* name : {"adj_data", "adj_indices", "adj_indptr", "adj_shape", "attr_data", "attr_indices",
                           "attr_indptr", "attr_shape", "labels"}) {
    if (size == 0) break;
    const std::size_t count = std::min<std::size_t>(data[0], size - 1);
    const std::vector<std::int8_t> numbers(data + 1, data + 1 + count);
    files.emplace_back(std::string(name) + ".npy", testing::npy_vector("|i1", numbers));
    data += 1 + count;
    size -= 1 + count;
  }
  const std::string archive = testing::zip_of(files, {false, ""});
  try {
    Graph graph = parse_npz_graph(bytes_of(archive), "input");
    if (with_self_loops(undirected(graph.edges)).rows() != graph.nodes) __builtin_trap();
    normalise_rows(graph.features);
    std::vector<float> row(static_cast<std::size_t>(graph.features.columns));
    for (std::int32_t node = 0; node < graph.nodes; ++node) {
      gather_rows(graph.features, std::span(&node, 1), row.data());
      if (graph.labels.at(static_cast<std::size_t>(node)) >= graph.classes) __builtin_trap();
    }
  } catch (const UserError&) {
  }
  return 0;
}
