#include "lowtide/data/graph/class_names.h"

#include <map>

namespace lowtide {

void label_by_name(const std::vector<std::string>& class_of_node, Graph& graph) {
  std::map<std::string, std::int32_t> numbers;
  for (const std::string& name : class_of_node) numbers[name];
  for (auto& [name, number] : numbers) number = graph.classes++;
  for (const std::string& name : class_of_node) graph.labels.push_back(numbers[name]);
}

}  // namespace lowtide
