#include "lowtide/data/graph/graph.h"

#include <fmt/format.h>

#include "lowtide/base/error.h"
#include "lowtide/data/graph/citation.h"
#include "lowtide/data/graph/musae.h"
#include "lowtide/data/graph/npz_graph.h"
#include "lowtide/data/graph/ogb.h"

namespace lowtide {

Graph open_graph(const std::string& format, const std::filesystem::path& path) {
  if (format == "npz") return open_npz_graph(path);
  const bool known = format == "ogb" || format == "musae" || format == "citation";
  if (!known) {
    throw UserError(
        fmt::format("graph format '{}' is not known; expected ogb, npz, musae or citation", format));
  }
  if (!std::filesystem::is_directory(path)) {
    throw UserError(fmt::format("{}: no such folder; expected one with {} data", path.string(), format));
  }
  if (format == "ogb") return open_ogb_graph(path);
  return format == "musae" ? open_musae(path) : open_citation(path);
}

std::string Graph::describe() const {
  const std::string parts = split.empty()
                                ? "no split"
                                : fmt::format("{} to train, {} to validate, {} to test", split.train.size(),
                                              split.valid.size(), split.test.size());
  return fmt::format("{}: {} nodes, {} edges, {} {}features, {} classes; {}", place, nodes, edges.entries(),
                     features.columns, features.is_sparse() ? "sparse " : "", classes, parts);
}

}  // namespace lowtide
