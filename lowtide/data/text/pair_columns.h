#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lowtide {

// Where a line of tab-separated text has what.
struct PairColumns {
  std::size_t count = 3;
  std::size_t premise = 0;
  std::size_t hypothesis = 1;
  std::optional<std::size_t> label = 2;
  std::optional<std::size_t> language;
};

// The columns that a header names, by the names that data sets of sentence pairs use; nothing for a line that is none.
std::optional<PairColumns> usual_columns(const std::vector<std::string_view>& header);

// The columns that a user names, premise, hypothesis and label: by numbers from 1, or as the header has them, which may
// lack the label. `first_line` is split into its fields; `place` begins the UserError about a column that it has not.
struct ChosenColumns {
  PairColumns columns;
  bool header = false;  // the first line is one
};
ChosenColumns chosen_columns(const std::vector<std::string>& names,
                             const std::vector<std::string_view>& first_line, const std::string& place);

}  // namespace lowtide
