#include "lowtide/data/text/vocabulary.h"

namespace lowtide {

std::int32_t Vocabulary::add(std::string_view word) {
  if (const auto known = find(word)) return *known;
  const std::int32_t number = size();
  numbers_.emplace(word, number);
  words_.emplace_back(word);
  return number;
}

std::optional<std::int32_t> Vocabulary::find(std::string_view word) const {
  const auto found = numbers_.find(word);
  if (found == numbers_.end()) return std::nullopt;
  return found->second;
}

}  // namespace lowtide
