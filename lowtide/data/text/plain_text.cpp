#include "lowtide/data/text/plain_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_map>

#include "lowtide/base/error.h"
#include "lowtide/data/text/unicode.h"
#include "lowtide/io/lines.h"
#include "lowtide/io/mapped_file.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kBlank = " \t\v\f\r";

bool continues_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

template <typename Take>
void for_each_word(std::string_view line, const Take& take) {
  while (true) {
    line.remove_prefix(std::min(line.find_first_not_of(kBlank), line.size()));
    if (line.empty()) return;
    const std::string_view word = line.substr(0, line.find_first_of(kBlank));
    take(word);
    line.remove_prefix(word.size());
  }
}

template <typename Take>
void for_each_character(std::string_view line, const Take& take) {
  while (!line.empty()) {
    std::size_t size = 1;
    while (size < line.size() && continues_character(line[size])) ++size;
    take(line.substr(0, size));
    line.remove_prefix(size);
  }
}

template <typename Take>
void for_each_token(std::string_view text, const std::string& name, const TextOptions& options,
                    const Take& take) {
  if (text.find('\0') != text.npos)
    throw UserError(fmt::format("{}: holds a zero byte; expected plain text", name));
  bool any = false;
  for_each_line(text, [&](std::string_view line, std::size_t number) {
    if (!is_utf8(line))
      throw UserError(fmt::format("{}:{}: not UTF-8; expected text in that encoding", name, number));
    const auto take_any = [&](std::string_view token) {
      any = true;
      take(token);
    };
    options.characters ? for_each_character(line, take_any) : for_each_word(line, take_any);
    take(kEndOfLine);
  });
  if (!any) throw UserError(fmt::format("{}: nothing in it; expected text", name));
}

// The first place from `from` on, and before `to`, at which a part may end.
std::size_t cut_from(std::string_view text, std::size_t from, std::size_t to) {
  for (const std::string_view separators : {std::string_view("\n"), std::string_view(" \t\n")}) {
    const std::size_t found = text.find_first_of(separators, from);
    if (found < to) return found + 1;
  }
  while (from < to && continues_character(text[from])) ++from;
  return from;
}

void describe_unknown(Corpus& corpus) {
  const auto share = [](const std::vector<std::int32_t>& tokens) {
    return 100.0 * static_cast<double>(std::count(tokens.begin(), tokens.end(), 0)) /
           static_cast<double>(tokens.size());
  };
  corpus.note = fmt::format(", of which {:.2f}, {:.2f} and {:.2f} % are {}", share(corpus.train),
                            share(corpus.valid), share(corpus.test), kUnknownWord);
}

// `texts` are in the order train, valid, test.
Corpus encode_parts(const fs::path& path, const std::array<std::string_view, 3>& texts,
                    const std::array<std::string, 3>& names, const TextOptions& options) {
  Corpus corpus;
  corpus.place = path.string();
  corpus.kind = options.characters ? "characters" : "words";
  corpus.vocabulary = text_vocabulary(texts[0], names[0], options);
  const std::array parts{&corpus.train, &corpus.valid, &corpus.test};
  for (std::size_t i = 0; i < parts.size(); ++i)
    *parts[i] = encode_text(texts[i], names[i], corpus.vocabulary, options);
  describe_unknown(corpus);
  return corpus;
}

}  // namespace

Vocabulary text_vocabulary(std::string_view training_text, const std::string& name,
                           const TextOptions& options) {
  std::unordered_map<std::string_view, std::int64_t> counts;
  std::vector<std::string_view> in_order;
  for_each_token(training_text, name, options, [&](std::string_view token) {
    if (++counts[token] == 1) in_order.push_back(token);
  });
  Vocabulary vocabulary;
  vocabulary.add(kUnknownWord);
  for (const std::string_view token : in_order) {
    if (token == kEndOfLine || counts[token] >= options.min_count) vocabulary.add(token);
  }
  if (vocabulary.size() == 2) {
    throw UserError(fmt::format("{}: nothing occurs {} times or more; expected a lower --min-count", name,
                                options.min_count));
  }
  return vocabulary;
}

std::vector<std::int32_t> encode_text(std::string_view text, const std::string& name,
                                      const Vocabulary& vocabulary, const TextOptions& options) {
  std::vector<std::int32_t> tokens;
  for_each_token(text, name, options,
                 [&](std::string_view token) { tokens.push_back(vocabulary.find(token).value_or(0)); });
  return tokens;
}

TextParts cut_text(std::string_view text) {
  const std::size_t first = text.size() * 18 / 20, second = text.size() * 19 / 20;
  const std::size_t valid = cut_from(text, first, second);
  const std::size_t test = cut_from(text, std::max(valid, second), text.size());
  return {text.substr(0, valid), text.substr(valid, test - valid), text.substr(test)};
}

Corpus open_text(const fs::path& path, const TextOptions& options) {
  if (!fs::is_directory(path)) {
    const MappedFile file(path);
    const TextParts parts = cut_text(text_of(file.bytes()));
    const std::string name = path.string();
    return encode_parts(path, {parts.train, parts.valid, parts.test},
                        {name, name + ", its last tenth", name + ", its last twentieth"}, options);
  }
  const std::array files{path / "train.txt", path / "valid.txt", path / "test.txt"};
  for (const fs::path& file : files) {
    if (fs::exists(file)) continue;
    throw UserError(
        fmt::format("{}: no such file; expected train.txt, valid.txt and test.txt in that folder, or one "
                    "file as --data-dir",
                    file.string()));
  }
  const MappedFile train(files[0]), valid(files[1]), test(files[2]);
  return encode_parts(path, {text_of(train.bytes()), text_of(valid.bytes()), text_of(test.bytes())},
                      {files[0].string(), files[1].string(), files[2].string()}, options);
}

}  // namespace lowtide
