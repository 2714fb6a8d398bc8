#include "lowtide/io/lines.h"

#include <fmt/format.h>

#include <string>

#include "lowtide/io/gzip.h"

namespace lowtide {
namespace {

constexpr std::size_t kMaxLineBytes = std::size_t{1} << 26;  // a node of 8,000 features takes 200 kB

std::string_view without_carriage_return(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

// Joins the parts of lines that pieces of a file have cut.
class LineJoiner {
 public:
  LineJoiner(std::string name, const TakeLine& take) : name_(std::move(name)), take_(take) {}

  void add(std::string_view piece) {
    for (std::size_t end = piece.find('\n'); end != piece.npos; end = piece.find('\n')) {
      if (rest_.empty()) {
        finish(piece.substr(0, end));
      } else {
        keep(piece.substr(0, end));
        finish(rest_);
        rest_.clear();
      }
      piece.remove_prefix(end + 1);
    }
    keep(piece);
  }

  void end() {
    if (!rest_.empty()) finish(rest_);
  }

 private:
  void keep(std::string_view part) {
    check(rest_.size() + part.size());
    rest_ += part;
  }

  void finish(std::string_view line) {
    check(line.size());
    take_(without_carriage_return(line), number_++);
  }

  void check(std::size_t line_bytes) const {
    if (line_bytes <= kMaxLineBytes) return;
    throw UserError(fmt::format("{}:{}: a line of more than {} bytes; expected text: is it the right file?",
                                name_, number_, kMaxLineBytes));
  }

  std::string name_;
  const TakeLine& take_;
  std::size_t number_ = 1;
  std::string rest_;
};

}  // namespace

void for_each_line(std::string_view text, const TakeLine& take) {
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    take(without_carriage_return(text.substr(0, end)), number);
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
  }
}

void for_each_line_of(const std::filesystem::path& path, const TakeLine& take) {
  LineJoiner joiner(path.string(), take);
  for_each_piece(path, [&](ByteSpan piece) { joiner.add(text_of(piece)); });
  joiner.end();
}

LineSource lines_of_file(const std::filesystem::path& path) {
  return {path.string(), [path](const TakeLine& take) { for_each_line_of(path, take); }};
}

LineSource lines_of_text(std::string_view text, const std::string& name) {
  return {name, [text](const TakeLine& take) { for_each_line(text, take); }};
}

std::vector<std::string_view> split_fields(std::string_view line, char separator) {
  std::vector<std::string_view> fields;
  for (std::size_t end = line.find(separator); end != line.npos; end = line.find(separator)) {
    fields.push_back(line.substr(0, end));
    line.remove_prefix(end + 1);
  }
  fields.push_back(line);
  return fields;
}

std::optional<std::vector<std::string>> split_csv(std::string_view line) {
  std::vector<std::string> fields(1);
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == ',') {
      fields.emplace_back();
    } else if (line[i] != '"') {
      fields.back() += line[i];
    } else {
      // Quotes begin a field or are none; within them two stand for one.
      if (!fields.back().empty()) return std::nullopt;
      for (++i; i < line.size() && (line[i] != '"' || line.substr(i).starts_with("\"\"")); ++i) {
        fields.back() += line[i];
        if (line[i] == '"') ++i;
      }
      const bool ends = i + 1 == line.size() || (i < line.size() && line[i + 1] == ',');
      if (!ends) return std::nullopt;
    }
  }
  return fields;
}

}  // namespace lowtide
