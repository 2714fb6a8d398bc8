#include "lowtide/report/metrics.h"

#include <fmt/format.h>
#include <simdjson.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <string_view>

#include "lowtide/base/error.h"
#include "lowtide/data/split.h"
#include "lowtide/io/file.h"
#include "lowtide/train/metrics_line.h"

namespace lowtide {
namespace {

using simdjson::ondemand::json_type;

constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 32;  // twenty million lines

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

struct Field {
  std::string_view key;
  double value = kNone;
};

struct Line {
  std::string_view split;
  std::vector<Field> fields;
  bool has_step = false;
};

// A number; a truth value as 1 or 0; NaN for null. Text, lists and objects are not drawn.
bool is_drawable(json_type type) {
  return type == json_type::number || type == json_type::boolean || type == json_type::null;
}

double read_number(simdjson::ondemand::value value, json_type type) {
  if (type == json_type::number) return value.get_double();
  if (type == json_type::boolean) return value.get_bool() ? 1 : 0;
  if (!value.is_null())
    throw simdjson::simdjson_error(simdjson::N_ATOM_ERROR);  // begins with n, and is not null
  return kNone;
}

// Throws simdjson_error for what is not a JSON object.
void read_line(simdjson::ondemand::document& document, Line& line) {
  line = {split_name(Split::kTrain), std::move(line.fields), false};
  line.fields.clear();
  for (auto field : document.get_object()) {
    const std::string_view key = field.unescaped_key();
    simdjson::ondemand::value value = field.value();
    const json_type type = value.type();
    if (key == kSplitKey) {
      line.split = value.get_string();
    } else if (is_drawable(type)) {
      line.fields.push_back({key, read_number(value, type)});
      if (key == kStepKey) line.has_step = type == json_type::number;
    }
  }
  if (document.current_location().error() != simdjson::OUT_OF_BOUNDS)
    throw simdjson::simdjson_error(simdjson::TRAILING_CONTENT);
}

MetricsTable& table_of(Metrics& metrics, std::string_view split) {
  for (MetricsTable& table : metrics.tables) {
    if (table.split == split) return table;
  }
  return metrics.tables.emplace_back(MetricsTable{std::string(split), 0, {}});
}

// The lines of a table nearly always have the same keys in the same order: the column is where the line
// before had it.
Column& column_of(MetricsTable& table, std::size_t guess, std::string_view key) {
  if (guess < table.columns.size() && table.columns[guess].name == key) return table.columns[guess];
  for (Column& column : table.columns) {
    if (column.name == key) return column;
  }
  return table.columns.emplace_back(Column{std::string(key), std::vector<double>(table.rows, kNone)});
}

void append(MetricsTable& table, const Line& line) {
  for (std::size_t i = 0; i < line.fields.size(); ++i) {
    Column& column = column_of(table, i, line.fields[i].key);
    if (column.values.size() == table.rows) column.values.push_back(line.fields[i].value);
  }
  ++table.rows;
  for (Column& column : table.columns) column.values.resize(table.rows, kNone);
}

UserError damaged(const std::string& name, std::string_view text, const char* at, std::string_view what) {
  const auto line = std::count(text.data(), at, '\n') + 1;
  return UserError(
      fmt::format("{}:{}: {}; expected one JSON object a line: mend or remove this line", name, line, what));
}

// `buffer` holds the text and, behind it, the bytes that simdjson may read beyond an end.
Metrics parse_padded(const std::string& buffer, std::size_t size, const std::string& name) {
  const std::string_view text(buffer.data(), size);
  Metrics metrics;
  metrics.tables.push_back({split_name(Split::kTrain), 0, {}});
  simdjson::ondemand::parser parser;
  Line line;
  std::size_t begin = 0;
  for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n', begin)) {
    try {
      simdjson::ondemand::document document =
          parser.iterate(text.data() + begin, end - begin, buffer.size() - begin);
      read_line(document, line);
    } catch (const simdjson::simdjson_error&) {
      throw damaged(name, text, text.data() + begin, "is not a JSON object");
    }
    if (!line.has_step) throw damaged(name, text, text.data() + begin, "has no number `step`");
    append(table_of(metrics, line.split), line);
    begin = end + 1;
  }
  metrics.end = begin;
  return metrics;
}

// What the file holds behind the byte `from` now, with the padding; returns its size without.
std::size_t read_from(const std::filesystem::path& path, std::uint64_t from, std::string& buffer) {
  const FileDescriptor file = open_for_reading(path);
  struct stat status {};
  if (::fstat(file.number(), &status) != 0) throw cannot_read(path, errno);
  const auto whole = static_cast<std::uint64_t>(status.st_size);
  const std::size_t size = whole > from ? whole - from : 0;
  if (size > kMaxBytes) {
    throw UserError(
        fmt::format("{}: {} bytes of lines; expected at most {}", path.filename().string(), size, kMaxBytes));
  }
  buffer.resize(size + simdjson::SIMDJSON_PADDING);
  std::size_t used = 0;
  while (used < size) {
    const ssize_t got =
        ::pread(file.number(), buffer.data() + used, size - used, static_cast<off_t>(from + used));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw cannot_read(path, errno);
    if (got == 0) break;  // it was cut short since
    used += static_cast<std::size_t>(got);
  }
  return used;
}

}  // namespace

const Column* MetricsTable::find(std::string_view column_name) const {
  for (const Column& column : columns) {
    if (column.name == column_name) return &column;
  }
  return nullptr;
}

Metrics parse_metrics(std::string text, const std::string& name) {
  const std::size_t size = text.size();
  text.resize(size + simdjson::SIMDJSON_PADDING);
  return parse_padded(text, size, name);
}

Metrics read_metrics(const std::filesystem::path& path, std::uint64_t from) {
  std::string buffer;
  const std::size_t size = read_from(path, from, buffer);
  try {
    Metrics metrics = parse_padded(buffer, size, path.string());
    metrics.end += from;
    return metrics;
  } catch (const UserError&) {
    if (from > 0) read_metrics(path);  // for the number of the line
    throw;
  }
}

}  // namespace lowtide
