#include "lowtide/data/text/corpus.h"

#include <fmt/format.h>

#include "lowtide/base/error.h"
#include "lowtide/io/json_check.h"
#include "lowtide/io/lines.h"
#include "lowtide/io/mapped_file.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

// `number_of(word, line number)` says which number a word has.
template <typename NumberOf>
std::vector<std::int32_t> parse(std::string_view text, const std::string& name, NumberOf number_of) {
  if (text.find('\0') != text.npos) {
    throw UserError(fmt::format("{}: holds a zero byte; expected plain text, a line a sentence", name));
  }
  std::vector<std::int32_t> tokens;
  std::size_t words = 0;
  for_each_line(text, [&](std::string_view line, std::size_t number) {
    for (const std::string_view word : split_fields(line, ' ')) {
      if (word.empty()) continue;
      tokens.push_back(number_of(word, number));
      ++words;
    }
    tokens.push_back(number_of(kEndOfLine, number));
  });
  if (words == 0) throw UserError(fmt::format("{}: no words in it; expected text, a line a sentence", name));
  return tokens;
}

struct Layout {
  std::string prefix;
  std::string suffix;
};

Layout layout_of(const std::string& format) {
  if (format == "ptb") return {"ptb.", ".txt"};
  if (format == "wikitext") return {"wiki.", ".tokens"};
  throw UserError(fmt::format("text format '{}' is not known; expected ptb or wikitext", format));
}

}  // namespace

std::vector<std::int32_t> parse_training_text(std::string_view text, const std::string& name,
                                              Vocabulary& vocabulary) {
  return parse(text, name, [&](std::string_view word, std::size_t) { return vocabulary.add(word); });
}

std::vector<std::int32_t> parse_text(std::string_view text, const std::string& name,
                                     const Vocabulary& vocabulary) {
  const auto unknown = vocabulary.find(kUnknownWord);
  return parse(text, name, [&](std::string_view word, std::size_t line) {
    const auto number = vocabulary.find(word);
    if (!number && !unknown) {
      throw UserError(
          fmt::format("{}:{}: the word {} is not in the training text, which has no {} for it either; "
                      "expected the files of one data set",
                      name, line, shown(word), kUnknownWord));
    }
    return number ? *number : *unknown;
  });
}

Corpus open_corpus(const std::string& format, const fs::path& folder) {
  const Layout layout = layout_of(format);
  const auto path = [&](const std::string& part) { return folder / (layout.prefix + part + layout.suffix); };
  for (const std::string part : {"train", "valid", "test"}) {
    if (fs::is_regular_file(path(part))) continue;
    throw UserError(fmt::format("{}: no such file; expected {}train{}, {}valid{} and {}test{} in that folder",
                                path(part).string(), layout.prefix, layout.suffix, layout.prefix,
                                layout.suffix, layout.prefix, layout.suffix));
  }
  Corpus corpus;
  corpus.place = folder.string();
  corpus.train = parse_training_text(text_of(MappedFile(path("train")).bytes()), path("train").string(),
                                     corpus.vocabulary);
  for (const auto& [part, tokens] : {std::pair{"valid", &corpus.valid}, {"test", &corpus.test}}) {
    *tokens = parse_text(text_of(MappedFile(path(part)).bytes()), path(part).string(), corpus.vocabulary);
  }
  return corpus;
}

std::string Corpus::describe() const {
  return fmt::format("{}: {} training, {} validation and {} test tokens{}, {} {}", place, train.size(),
                     valid.size(), test.size(), note, vocabulary.size(), kind);
}

}  // namespace lowtide
