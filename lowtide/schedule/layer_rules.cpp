#include "lowtide/schedule/layer_rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "lowtide/base/error.h"
#include "lowtide/schedule/text.h"

namespace lowtide {

Bits LayerPrecision::resolve(Bits scheduled) const {
  if (is_fp32(scheduled) || kind == Kind::kFp32) return {};
  return kind == Kind::kFixed ? Bits{bits, scheduled.backward} : scheduled;
}

std::string to_string(const LayerPrecision& precision) {
  switch (precision.kind) {
    case LayerPrecision::Kind::kScheduled:
      return "scheduled";
    case LayerPrecision::Kind::kFixed:
      return fmt::format("{}", precision.bits);
    case LayerPrecision::Kind::kFp32:
      return "fp32";
  }
  LOWTIDE_CHECK(false, "an unknown kind of layer precision");
}

LayerPrecision parse_layer_precision(std::string_view text) {
  if (equal_ignoring_case(text, "scheduled")) return {};
  if (equal_ignoring_case(text, "fp32")) return {LayerPrecision::Kind::kFp32, 0};
  const auto bits = parse_integer(text);
  if (bits && *bits >= kFewestBits && *bits <= kMostBits) {
    return {LayerPrecision::Kind::kFixed, static_cast<int>(*bits)};
  }
  throw UserError(fmt::format("{} is not the precision of a layer; expected {} to {} bits, fp32 or scheduled",
                              quoted(text), kFewestBits, kMostBits));
}

LayerRules::LayerRules(const std::vector<std::string>& rules) {
  for (const std::string& rule : rules) add(rule);
}

void LayerRules::add(std::string_view rule) {
  const auto words = split_words(rule);
  const auto parts = split(rule, '=');
  if (words.size() != 1 || words[0] != rule || parts.size() != 2 || parts[0].empty()) {
    throw UserError(fmt::format(
        "layer rule {}: expected PATTERN=PRECISION, such as conv1=8 or *.shortcut=fp32", quoted(rule)));
  }
  try {
    rules_.push_back({std::string(parts[0]), parse_layer_precision(parts[1])});
  } catch (const UserError& error) {
    throw UserError(fmt::format("layer rule {}: {}", quoted(rule), error.what()));
  }
}

LayerPrecision LayerRules::match(std::string_view layer, LayerPrecision otherwise) const {
  for (auto rule = rules_.rbegin(); rule != rules_.rend(); ++rule) {
    if (glob_matches(rule->pattern, layer)) return rule->precision;
  }
  return otherwise;
}

std::vector<std::string> LayerRules::unmatched(const std::vector<std::string>& layers) const {
  std::vector<std::string> patterns;
  for (const Rule& rule : rules_) {
    const bool matches = std::any_of(layers.begin(), layers.end(), [&](const std::string& layer) {
      return glob_matches(rule.pattern, layer);
    });
    if (!matches) patterns.push_back(rule.pattern);
  }
  return patterns;
}

std::string to_string(const LayerRules::Rule& rule) {
  return fmt::format("{}={}", rule.pattern, to_string(rule.precision));
}

// On a mismatch, only the last star needs to take one character more: an earlier one could gain nothing by
// it. So the time is at most the product of the lengths, whatever the pattern.
bool glob_matches(std::string_view pattern, std::string_view name) {
  std::size_t p = 0;
  std::size_t n = 0;
  std::size_t after_star = std::string_view::npos;
  std::size_t star_end = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      after_star = ++p;
      star_end = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (after_star != std::string_view::npos) {
      p = after_star;
      n = ++star_end;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

}  // namespace lowtide
