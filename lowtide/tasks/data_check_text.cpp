#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "lowtide/tasks/data_check.h"

namespace lowtide {
namespace {

// More classes than this are told by how many each has.
constexpr std::size_t kMostListed = 30;

std::string range_text(std::int64_t least, std::int64_t most) {
  return least == most ? fmt::to_string(least) : fmt::format("{} to {}", least, most);
}

std::string classes_text(const DataPart& part) {
  if (part.classes.size() > kMostListed) {
    const auto [least, most] =
        std::minmax_element(part.classes.begin(), part.classes.end(),
                            [](const auto& a, const auto& b) { return a.second < b.second; });
    return fmt::format("{} {} in each of {} classes", range_text(least->second, most->second), part.counted,
                       part.classes.size());
  }
  std::vector<std::string> counts;
  for (const auto& [name, count] : part.classes) counts.push_back(fmt::format("{} {}", name, count));
  return fmt::format("{} by class: {}", part.counted, fmt::join(counts, ", "));
}

std::string part_text(const DataPart& part) {
  if (!part.failure.empty()) return fmt::format("{}\n  cannot be read: {}\n", part.name, part.failure);
  std::string text = fmt::format("{}\n", part.name);
  if (!part.note.empty()) text += fmt::format("  {}\n", part.note);
  text += fmt::format("  {} {}", part.items, part.item_name);
  if (part.widths.most > 0) {
    text += fmt::format(", {} wide and {} high", range_text(part.widths.least, part.widths.most),
                        range_text(part.heights.least, part.heights.most));
  }
  text += "\n";
  if (!part.classes.empty()) text += fmt::format("  {}\n", classes_text(part));
  for (const std::string& problem : part.damaged) text += fmt::format("  damaged: {}\n", problem);
  return text;
}

Json to_json(const DataPart& part) {
  Json json{{"part", part.name}, {"item", part.item_name}, {"items", part.items}, {"damaged", part.damaged}};
  if (!part.failure.empty()) json["failure"] = part.failure;
  if (!part.note.empty()) json["note"] = part.note;
  if (!part.classes.empty()) {
    Json classes = Json::array();
    for (const auto& [name, count] : part.classes)
      classes.push_back({{"class", name}, {part.counted, count}});
    json["classes"] = classes;
  }
  if (part.widths.most > 0) {
    json["widths"] = {part.widths.least, part.widths.most};
    json["heights"] = {part.heights.least, part.heights.most};
  }
  return json;
}

}  // namespace

Json to_json(const DataCheck& check) {
  Json parts = Json::array();
  for (const DataPart& part : check.parts) parts.push_back(to_json(part));
  return {{"parts", parts}, {"damaged", check.damaged()}, {"failed", check.failed()}};
}

std::string to_text(const DataCheck& check) {
  std::string text;
  for (const DataPart& part : check.parts) text += part_text(part);
  return text;
}

}  // namespace lowtide
