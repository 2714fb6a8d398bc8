#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lowtide {

// One number a line; NaN where a line has none (null stands for a number that was not finite).
struct Column {
  std::string name;
  std::vector<double> values;
};

// The lines of one kind: `train`, or the split that was evaluated. All columns are of the same length.
struct MetricsTable {
  std::string split;
  std::size_t rows = 0;
  std::vector<Column> columns;  // in the order of their first appearance

  const Column* find(std::string_view column_name) const;  // nullptr where there is none
};

struct Metrics {
  std::vector<MetricsTable> tables;  // `train` is the first, also where it is empty
  std::uint64_t end = 0;             // offset in the file: behind the last whole line

  const MetricsTable& train() const { return tables.front(); }
};

// The whole lines of metrics.jsonl from the byte `from` on, which begins a line; an unfinished last one is
// left out. A line that is not a JSON object with a number `step` is a UserError with its number. Made for
// files of many megabytes: `read_jsonl` keeps all of a line and takes some twenty times as long.
Metrics read_metrics(const std::filesystem::path& path, std::uint64_t from = 0);
Metrics parse_metrics(std::string text, const std::string& name);

}  // namespace lowtide
