#include "lowtide/schedule/table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "lowtide/base/error.h"
#include "lowtide/schedule/bits.h"
#include "lowtide/schedule/read_value.h"
#include "lowtide/schedule/text.h"

namespace lowtide {
namespace {

// Of 5[4/6/5]x100, whose x is known: 4, 6, 5.
std::vector<std::uint8_t> read_layers(std::string_view run, std::size_t x) {
  const std::size_t open = run.find('[');
  if (open >= x) return {};
  if (run[x - 1] != ']')
    throw UserError(fmt::format("{} is not a run with bits of layers such as 5[4/6/5]x100", quoted(run)));
  std::vector<std::uint8_t> layers;
  for (const std::string_view bits : split(run.substr(open + 1, x - open - 2), '/'))
    layers.push_back(static_cast<std::uint8_t>(read_bits(bits)));
  return layers;
}

}  // namespace

TableRun read_table_run(std::string_view text) {
  if (text.starts_with('@'))
    throw UserError(fmt::format(
        "{} is a file, read where a user names it and nowhere else; expected its runs, such as 8x100",
        quoted(text)));
  const std::size_t x = text.find('x');
  if (x == std::string_view::npos)
    throw UserError(fmt::format("{} is not a run such as 8x100, BITSxSTEPS", quoted(text)));
  const TableRun run = {.bits = read_bits(text.substr(0, std::min(x, text.find('[')))),
                        .steps = read_integer(text.substr(x + 1)),
                        .layers = read_layers(text, x)};
  if (run.steps < 1)
    throw UserError(fmt::format("{} has {} steps; expected at least 1", quoted(text), run.steps));
  return run;
}

void BitTable::append(TableRun run) {
  if (run.steps > kMostSteps - steps_)
    throw UserError(fmt::format("a table of more than {} steps; expected fewer", kMostSteps));
  steps_ += run.steps;
  if (!runs_.empty() && runs_.back().layers.size() != run.layers.size())
    throw UserError(
        fmt::format("{} has bits of {} layers, and the run before it of {}; expected as many throughout",
                    to_string(run), run.layers.size(), runs_.back().layers.size()));
  if (!runs_.empty() && runs_.back().has_bits_of(run)) {
    runs_.back().steps += run.steps;
    return;
  }
  if (runs_.size() == kMostRuns)
    throw UserError(fmt::format("a table of more than {} runs; expected fewer changes of bits", kMostRuns));
  runs_.push_back(std::move(run));
}

BitRange BitTable::bits() const {
  BitRange range{kMostBits, kFewestBits};
  const auto add = [&](int bits) { range = {std::min(range.low, bits), std::max(range.high, bits)}; };
  for (const TableRun& run : runs_) {
    add(run.bits);
    for (const int bits : run.layers) add(bits);
  }
  return range;
}

std::string to_string(const TableRun& run) {
  return run.layers.empty() ? fmt::format("{}x{}", run.bits, run.steps)
                            : fmt::format("{}[{}]x{}", run.bits, fmt::join(run.layers, "/"), run.steps);
}

std::string to_string(const BitTable& table) {
  std::string text;
  for (const TableRun& run : table.runs()) {
    if (!text.empty()) text += ' ';
    text += to_string(run);
  }
  return text;
}

}  // namespace lowtide
