#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lowtide/recipe/recipe.h"

namespace lowtide {

// What a key takes, beyond its type. Of a list it holds for each element.
struct Accepted {
  // Of text: what it is, as help shows it (FILE, FOLDER, MODEL), or the choices there are (sgd|adam).
  std::string_view kind{};
  // Of numbers: the ends of a range, which belong to it unless they are open.
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool open_low = false, open_high = false;

  bool has_choices() const { return kind.find('|') != std::string_view::npos; }
  bool holds(double value) const {
    return (open_low ? value > low : value >= low) && (open_high ? value < high : value <= high);
  }
  std::string range_text() const;  // "0 or more, below 1"
};

// A key of a recipe, and its value in one.
struct RecipeKey {
  using Value = std::variant<bool*, int*, std::int64_t*, std::uint64_t*, double*, std::string*,
                             std::vector<int>*, std::vector<double>*, std::vector<std::string>*>;

  std::string name;
  Value value;
  std::string help;
  Accepted accepted{};
  std::string_view group{};  // in help and in printed recipes
};

constexpr std::string_view kDeviceGroup = "Device (changes how floats are rounded)";
constexpr std::string_view kRunningGroup = "Running (does not change what is computed)";

// Every key, in the order of help and of printed recipes. The recipe must outlive them.
std::vector<RecipeKey> recipe_keys(Recipe& recipe);

}  // namespace lowtide
