#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lowtide/data/graph/graph.h"

namespace lowtide {

// Gives every node the number of its class, classes being numbered by name.
void label_by_name(const std::vector<std::string>& class_of_node, Graph& graph);

}  // namespace lowtide
