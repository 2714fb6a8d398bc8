#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lowtide {

// The word that stands for every unknown one, and the one that ends a line.
inline constexpr std::string_view kUnknownWord = "<unk>", kEndOfLine = "<eos>";

// Words and their numbers, 0, 1, 2 … in the order in which they were added.
class Vocabulary {
 public:
  std::int32_t add(std::string_view word);  // the number it has already, if it is known
  std::optional<std::int32_t> find(std::string_view word) const;
  const std::string& word(std::int32_t number) const { return words_.at(static_cast<std::size_t>(number)); }
  std::int32_t size() const { return static_cast<std::int32_t>(words_.size()); }

 private:
  // Lets a map of strings be searched by a view, without a copy.
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };

  std::vector<std::string> words_;
  std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>> numbers_;
};

}  // namespace lowtide
