#pragma once

#include <filesystem>

#include "lowtide/data/graph/graph.h"
#include "lowtide/io/lines.h"

namespace lowtide {

// Papers that cite each other, as plain text (Cora and CiteSeer of https://linqs.org):
//   NAME.content  paper, features, class: separated by tabs or spaces
//   NAME.cites    cited paper, citing paper: the edge leads from the second to the first
// Papers are numbered by their lines, classes by name. A citation of a paper that is not in NAME.content is a
// UserError, which says how many there are (CiteSeer as published has some).
Graph parse_citation(const LineSource& content, const LineSource& cites);
Graph open_citation(const std::filesystem::path& folder);

}  // namespace lowtide
