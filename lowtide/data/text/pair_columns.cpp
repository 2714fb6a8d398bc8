#include "lowtide/data/text/pair_columns.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>

#include "lowtide/base/error.h"
#include "lowtide/io/json_check.h"
#include "lowtide/io/lines.h"

namespace lowtide {
namespace {

std::optional<std::size_t> find_column(const std::vector<std::string_view>& header,
                                       std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    const auto found = std::find(header.begin(), header.end(), name);
    if (found != header.end()) return static_cast<std::size_t>(found - header.begin());
  }
  return std::nullopt;
}

std::size_t column_number(const std::string& name, std::size_t count, const std::string& place) {
  const auto number = parse_number<std::size_t>(name);
  if (!number || *number < 1 || *number > count) {
    throw UserError(fmt::format("{}: {} columns, and --columns asks for {}; expected 1 to {}", place, count,
                                shown(name), count));
  }
  return *number - 1;
}

}  // namespace

std::optional<PairColumns> usual_columns(const std::vector<std::string_view>& header) {
  const auto premise = find_column(header, {"sentence1", "premise", "sentence_A"});
  const auto hypothesis = find_column(header, {"sentence2", "hypothesis", "hypo", "sentence_B"});
  if (!premise || !hypothesis) return std::nullopt;
  return PairColumns{header.size(), *premise, *hypothesis,
                     find_column(header, {"gold_label", "label", "entailment_judgment"}),
                     find_column(header, {"language"})};
}

ChosenColumns chosen_columns(const std::vector<std::string>& names,
                             const std::vector<std::string_view>& first_line, const std::string& place) {
  const std::size_t count = first_line.size();
  const bool numbers = std::all_of(names.begin(), names.end(),
                                   [](const std::string& name) { return parse_number<std::size_t>(name); });
  if (numbers) {
    const auto number = [&](std::size_t which) { return column_number(names.at(which), count, place); };
    return {{count, number(0), number(1), number(2), std::nullopt}, /*header=*/false};
  }
  const auto premise = find_column(first_line, {names.at(0)}),
             hypothesis = find_column(first_line, {names.at(1)});
  if (!premise || !hypothesis) {
    throw UserError(
        fmt::format("{}:1: no column {}; expected a header that has it, or numbers from 1 as --columns",
                    place, shown(names[premise ? 1 : 0])));
  }
  return {{count, *premise, *hypothesis, find_column(first_line, {names.at(2)}), std::nullopt},
          /*header=*/true};
}

}  // namespace lowtide
