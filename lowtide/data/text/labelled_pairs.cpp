// Pairs of sentences with whatever labels a user's files have.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "lowtide/base/error.h"
#include "lowtide/data/text/entailment.h"
#include "lowtide/data/text/pair_columns.h"
#include "lowtide/data/text/unicode.h"
#include "lowtide/io/json_check.h"

namespace lowtide {
namespace {

// More labels than this are no classes, but another column.
constexpr std::size_t kMostClasses = 1000;

class PairReader {
 public:
  PairReader(const LineSource& source, const PairLabels& wanted) : name_(source.name), wanted_(wanted) {
    data_.place = source.name;
  }

  void take(std::string_view line, std::size_t number) {
    const auto fields = split_fields(line, '\t');
    if (number == 1 && find_columns(fields)) return;
    if (fields.size() != columns_.count) {
      throw UserError(fmt::format(
          "{}:{}: {} columns; expected {}, separated by tabs{}", name_, number, fields.size(), columns_.count,
          number == 1 ? ": premise, hypothesis, label, or a header that names them" : ""));
    }
    SentencePair pair{std::string(fields[columns_.premise]), std::string(fields[columns_.hypothesis])};
    const std::string_view label = columns_.label ? fields[*columns_.label] : std::string_view();
    if (!is_utf8(pair.premise) || !is_utf8(pair.hypothesis) || !is_utf8(label))
      throw UserError(fmt::format("{}:{}: not UTF-8; expected text in that encoding", name_, number));
    if (columns_.label) pair.label = number_of(label, number);
    data_.pairs.push_back(std::move(pair));
  }

  EntailmentData finish() {
    if (data_.pairs.empty()) throw UserError(fmt::format("{}: no pairs of sentences; expected some", name_));
    if (!columns_.label) return std::move(data_);
    data_.classes = wanted_.classes;
    if (wanted_.classes.empty()) number_by_name();
    if (data_.classes.size() < 2) {
      throw UserError(fmt::format("{}: every label is {}; expected two classes or more", name_,
                                  shown(data_.classes.at(0))));
    }
    return std::move(data_);
  }

 private:
  // Whether the first line is a header.
  bool find_columns(const std::vector<std::string_view>& fields) {
    for (const std::string& label : wanted_.classes)
      numbers_.emplace(label, static_cast<std::int32_t>(numbers_.size()));
    if (!wanted_.columns.empty()) {
      const ChosenColumns chosen = chosen_columns(wanted_.columns, fields, name_);
      columns_ = chosen.columns;
      return chosen.header;
    }
    const auto usual = usual_columns(fields);
    if (usual) columns_ = *usual;
    return usual.has_value();
  }

  std::int32_t number_of(std::string_view label, std::size_t line) {
    if (label.empty())
      throw UserError(fmt::format("{}:{}: no label; expected one for every pair", name_, line));
    const auto found = numbers_.find(label);
    if (found != numbers_.end()) return found->second;
    if (!wanted_.classes.empty()) {
      throw UserError(fmt::format("{}:{}: label {}; expected one of {}", name_, line, shown(label),
                                  fmt::join(wanted_.classes, ", ")));
    }
    if (numbers_.size() == kMostClasses) {
      throw UserError(
          fmt::format("{}:{}: more than {} labels, the last {}; expected classes: is it the right column?",
                      name_, line, kMostClasses, shown(label)));
    }
    return numbers_.emplace(label, static_cast<std::int32_t>(numbers_.size())).first->second;
  }

  // From the order in which labels were met to that of their names.
  void number_by_name() {
    std::vector<std::int32_t> places(numbers_.size());
    for (const auto& [label, met] : numbers_) {
      places[static_cast<std::size_t>(met)] = static_cast<std::int32_t>(data_.classes.size());
      data_.classes.push_back(label);
    }
    for (SentencePair& pair : data_.pairs) pair.label = places[static_cast<std::size_t>(pair.label)];
  }

  std::string name_;
  const PairLabels& wanted_;
  PairColumns columns_;
  std::map<std::string, std::int32_t, std::less<>> numbers_;  // of labels
  EntailmentData data_;
};

}  // namespace

EntailmentData parse_labelled_pairs(const LineSource& source, const PairLabels& wanted) {
  PairReader reader(source, wanted);
  source.for_each([&](std::string_view line, std::size_t number) { reader.take(line, number); });
  return reader.finish();
}

}  // namespace lowtide
