#include "lowtide/schedule/table.h"

#include <fmt/format.h>

#include <algorithm>

#include "lowtide/base/error.h"
#include "lowtide/schedule/bits.h"
#include "lowtide/schedule/read_value.h"
#include "lowtide/schedule/text.h"

namespace lowtide {

TableRun read_table_run(std::string_view text) {
  if (text.starts_with('@'))
    throw UserError(fmt::format(
        "{} is a file, read where a user names it and nowhere else; expected its runs, such as 8x100",
        quoted(text)));
  const std::size_t x = text.find('x');
  if (x == std::string_view::npos)
    throw UserError(fmt::format("{} is not a run such as 8x100, BITSxSTEPS", quoted(text)));
  const TableRun run{read_bits(text.substr(0, x)), read_integer(text.substr(x + 1))};
  if (run.steps < 1)
    throw UserError(fmt::format("{} has {} steps; expected at least 1", quoted(text), run.steps));
  return run;
}

void BitTable::append(TableRun run) {
  if (run.steps > kMostSteps - steps_)
    throw UserError(fmt::format("a table of more than {} steps; expected fewer", kMostSteps));
  steps_ += run.steps;
  if (!runs_.empty() && runs_.back().bits == run.bits) {
    runs_.back().steps += run.steps;
    return;
  }
  if (runs_.size() == kMostRuns)
    throw UserError(fmt::format("a table of more than {} runs; expected fewer changes of bits", kMostRuns));
  runs_.push_back(run);
}

BitRange BitTable::bits() const {
  const auto [low, high] = std::minmax_element(
      runs_.begin(), runs_.end(), [](const TableRun& a, const TableRun& b) { return a.bits < b.bits; });
  return {low->bits, high->bits};
}

std::string to_string(const BitTable& table) {
  std::string text;
  for (const TableRun& run : table.runs())
    text += fmt::format("{}{}x{}", text.empty() ? "" : " ", run.bits, run.steps);
  return text;
}

}  // namespace lowtide
