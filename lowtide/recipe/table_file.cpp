#include "lowtide/recipe/table_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "lowtide/base/error.h"
#include "lowtide/schedule/read_value.h"
#include "lowtide/schedule/text.h"

namespace lowtide {
namespace {

class TableReader {
 public:
  void read(std::string_view line) {
    const std::vector<std::string_view> words = split_words(line);
    if (words.empty()) return;
    const bool is_row = line.find(',') != std::string_view::npos;
    if (!has_rows_) {
      has_rows_ = is_row;
      if (is_row && equal_ignoring_case(line, "step,bits")) return;
    }
    if (is_row != *has_rows_)
      throw UserError(
          fmt::format("{} is not {}; expected one form throughout, 8x100 or step,bits", quoted(line),
                      *has_rows_ ? "a row step,bits like those before" : "a run like those before"));
    if (is_row) return read_row(line);
    for (const std::string_view word : words) table_.append(read_table_run(word));
  }

  BitTable table() {
    if (last_) table_.append({last_->bits, 1});
    if (table_.runs().empty())
      throw UserError("it has no steps; expected runs such as 8x100, or rows step,bits");
    return table_;
  }

 private:
  struct Row {
    std::int64_t step = 0;
    int bits = 0;
  };

  void read_row(std::string_view line) {
    const std::vector<std::string_view> fields = split(line, ',');
    if (fields.size() != 2)
      throw UserError(fmt::format("{} has {} fields; expected step,bits", quoted(line), fields.size()));
    const Row row{read_integer(fields[0]), read_bits(fields[1])};
    if (!last_ && row.step != 0) throw UserError(fmt::format("the first step is {}; expected 0", row.step));
    if (last_ && row.step <= last_->step)
      throw UserError(fmt::format("step {} follows step {}; expected a later one", row.step, last_->step));
    if (last_) table_.append({last_->bits, row.step - last_->step});
    last_ = row;
  }

  std::optional<bool> has_rows_;
  std::optional<Row> last_;
  BitTable table_;
};

}  // namespace

BitTable parse_table(const LineSource& lines) {
  TableReader reader;
  std::size_t last = 1;
  const auto located = [&](const auto& action) {
    try {
      return action();
    } catch (const UserError& error) {
      throw UserError(fmt::format("{}:{}: {}", lines.name, last, error.what()));
    }
  };
  lines.for_each([&](std::string_view line, std::size_t number) {
    last = number;
    located([&] { reader.read(line); });
  });
  return located([&] { return reader.table(); });
}

std::string with_tables_read(const std::string& schedule) {
  std::string result = schedule;
  for (std::size_t at = result.find('@'); at != std::string::npos; at = result.find('@', at)) {
    const std::size_t end = std::min(result.find_first_of(" \t)", at), result.size());
    const std::string runs = to_string(parse_table(lines_of_file(result.substr(at + 1, end - at - 1))));
    result.replace(at, end - at, runs);
    at += runs.size();
  }
  return result;
}

}  // namespace lowtide
