#include "lowtide/data/text/entailment.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "lowtide/base/error.h"
#include "lowtide/base/json.h"
#include "lowtide/data/text/pair_columns.h"
#include "lowtide/data/text/unicode.h"
#include "lowtide/io/json_check.h"

namespace lowtide {
namespace {

const std::vector<std::string> kThreeWay = {"entailment", "neutral", "contradiction"};
const std::vector<std::string> kTwoWay = {"entailment", "not_entailment"};
constexpr std::string_view kUndecided = "-";

// Collects the pairs of one file. Which of the two sets of classes it has shows with the first label that is
// only in one of them.
class Collector {
 public:
  explicit Collector(const LineSource& source) : name_(source.name) { data_.place = source.name; }

  void add(std::string_view premise, std::string_view hypothesis, std::optional<std::string_view> label,
           std::size_t line) {
    if (!is_utf8(premise) || !is_utf8(hypothesis)) {
      throw UserError(fmt::format("{}:{}: not UTF-8; expected text in that encoding", name_, line));
    }
    if (label && *label == kUndecided) {
      ++data_.undecided;
      return;
    }
    data_.pairs.push_back({std::string(premise), std::string(hypothesis),
                           label ? number_of(*label, line) : SentencePair::kNoLabel});
    labelled_ = labelled_ || label;
  }

  EntailmentData take(const std::string& language) {
    if (data_.pairs.empty()) {
      throw UserError(
          fmt::format("{}: no pairs of sentences{}; expected some", name_,
                      language.empty() ? "" : fmt::format(" for the language {}", shown(language))));
    }
    if (labelled_) data_.classes = two_way_.value_or(false) ? kTwoWay : kThreeWay;
    return std::move(data_);
  }

 private:
  std::int32_t number_of(std::string_view label, std::size_t line) {
    std::string lower(label);  // SICK has capitals
    for (char& letter : lower)
      letter = letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter + 32) : letter;
    if (lower == "contradictory") lower = "contradiction";  // XNLI's translated training sets
    if (lower == "entailment") return 0;
    const bool two_way = lower == kTwoWay[1];
    const auto known = std::find(kThreeWay.begin(), kThreeWay.end(), lower);
    if ((!two_way && known == kThreeWay.end()) || two_way_.value_or(two_way) != two_way) {
      throw UserError(
          fmt::format("{}:{}: label {}; expected entailment, neutral and contradiction, or entailment and "
                      "not_entailment, or - where there is none",
                      name_, line, shown(label)));
    }
    two_way_ = two_way;
    return two_way ? 1 : static_cast<std::int32_t>(known - kThreeWay.begin());
  }

  std::string name_;
  EntailmentData data_;
  std::optional<bool> two_way_;
  bool labelled_ = false;
};

std::string text_at(const Json& object, const char* key, const std::string& name, std::size_t line) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) {
    throw UserError(fmt::format("{}:{}: no text for {}; expected sentence1, sentence2 and gold_label", name,
                                line, shown(key)));
  }
  return found->get<std::string>();
}

}  // namespace

EntailmentData parse_entailment_tsv(const LineSource& source, const std::string& language) {
  Collector collector(source);
  PairColumns columns;
  source.for_each([&](std::string_view line, std::size_t number) {
    const auto fields = split_fields(line, '\t');
    if (number == 1) {
      if (const auto named = usual_columns(fields)) {
        columns = *named;
        return;
      }
    }
    if (fields.size() != columns.count) {
      throw UserError(fmt::format(
          "{}:{}: {} columns; expected {}, separated by tabs{}", source.name, number, fields.size(),
          columns.count, number == 1 ? ": premise, hypothesis, label, or a header that names them" : ""));
    }
    if (columns.language && !language.empty() && fields[*columns.language] != language) return;
    collector.add(fields[columns.premise], fields[columns.hypothesis],
                  columns.label ? std::optional(fields[*columns.label]) : std::nullopt, number);
  });
  return collector.take(language);
}

EntailmentData parse_entailment_jsonl(const LineSource& source, const std::string& language) {
  Collector collector(source);
  source.for_each([&](std::string_view line, std::size_t number) {
    const Json object =
        parse_json(line, fmt::format("{}:{}", source.name, number), "expected one JSON object a line");
    if (!object.is_object()) {
      throw UserError(
          fmt::format("{}:{}: {}; expected one JSON object a line", source.name, number, object.type_name()));
    }
    if (!language.empty() && object.contains("language") && object["language"] != language) return;
    const std::string premise = text_at(object, "sentence1", source.name, number);
    const std::string hypothesis = text_at(object, "sentence2", source.name, number);
    collector.add(premise, hypothesis, text_at(object, "gold_label", source.name, number), number);
  });
  return collector.take(language);
}

std::string EntailmentData::describe() const {
  std::string labels = "no labels";
  if (!classes.empty()) labels = fmt::format("{} classes", classes.size());
  if (undecided > 0) labels += fmt::format(", {} without agreement left out", undecided);
  return fmt::format("{}: {} pairs of sentences, {}", place, pairs.size(), labels);
}

}  // namespace lowtide
