#include "lowtide/recipe/data_formats.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <string>

#include "lowtide/base/error.h"
#include "lowtide/base/suggest.h"
#include "lowtide/recipe/recipe.h"

namespace lowtide {
namespace {

// What each format of data is for.
const std::map<std::string, TaskKind>& task_kinds() {
  static const std::map<std::string, TaskKind> kinds{{"idx", TaskKind::kImages},
                                                     {"cifar10", TaskKind::kImages},
                                                     {"cifar100", TaskKind::kImages},
                                                     {"folder", TaskKind::kImages},
                                                     {"tiny-imagenet", TaskKind::kImages},
                                                     {"ptb", TaskKind::kLanguage},
                                                     {"wikitext", TaskKind::kLanguage},
                                                     {"text", TaskKind::kLanguage},
                                                     {"ogb", TaskKind::kNodes},
                                                     {"npz", TaskKind::kNodes},
                                                     {"musae", TaskKind::kNodes},
                                                     {"citation", TaskKind::kNodes},
                                                     {"voc", TaskKind::kDetection},
                                                     {"xnli", TaskKind::kEntailment},
                                                     {"mnli", TaskKind::kEntailment},
                                                     {"rte", TaskKind::kEntailment},
                                                     {"sick", TaskKind::kEntailment},
                                                     {"pairs", TaskKind::kEntailment}};
  return kinds;
}

}  // namespace

TaskKind task_of(const DataOptions& data) {
  const auto& kinds = task_kinds();
  if (const auto found = kinds.find(data.format); found != kinds.end()) return found->second;
  const std::vector<std::string_view> formats = data_formats();
  throw UserError(fmt::format("data is '{}'{}; expected one of {}", data.format,
                              did_you_mean(data.format, formats), fmt::join(formats, ", ")));
}

std::vector<std::string_view> data_formats() {
  std::vector<std::string_view> names;
  for (const auto& [name, kind] : task_kinds()) names.push_back(name);
  return names;
}

}  // namespace lowtide
