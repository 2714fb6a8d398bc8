#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lowtide/schedule/bits.h"

namespace lowtide {

// At which precision a layer really runs when the schedule asks for some bits.
struct LayerPrecision {
  enum class Kind { kScheduled, kFixed, kFp32 };
  Kind kind = Kind::kScheduled;
  int bits = 0;  // kFixed: of the forward pass; gradients stay as scheduled

  // A step in fp32 is in fp32 everywhere: an override never makes a layer coarser than that.
  Bits resolve(Bits scheduled) const;
  bool operator==(const LayerPrecision&) const = default;
};
std::string to_string(const LayerPrecision& precision);       // "scheduled", "8", "fp32"
LayerPrecision parse_layer_precision(std::string_view text);  // throws UserError

// Rules such as "conv1=8", "*.shortcut=fp32", "group1.*=scheduled": a layer obeys the last whose pattern
// matches its name. In a pattern, * is any number of characters (dots too) and ? is one.
class LayerRules {
 public:
  struct Rule {
    std::string pattern;
    LayerPrecision precision;
    bool operator==(const Rule&) const = default;
  };

  LayerRules() = default;
  explicit LayerRules(const std::vector<std::string>& rules);

  void add(std::string_view rule);  // throws UserError if malformed
  LayerPrecision match(std::string_view layer, LayerPrecision otherwise = {}) const;

  // The patterns that match none of these layers: most likely typing errors.
  std::vector<std::string> unmatched(const std::vector<std::string>& layers) const;

  const std::vector<Rule>& rules() const { return rules_; }
  bool operator==(const LayerRules&) const = default;

 private:
  std::vector<Rule> rules_;
};
std::string to_string(const LayerRules::Rule& rule);

bool glob_matches(std::string_view pattern, std::string_view name);

}  // namespace lowtide
