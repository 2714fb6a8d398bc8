#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "lowtide/data/text/corpus.h"

namespace lowtide {

// What the tokens of a text are: words, which white space separates, or characters of UTF-8, spaces too. Either way
// <eos> ends every line.
struct TextOptions {
  bool characters = false;
  std::int64_t min_count = 1;  // what the training text has less often is <unk>
};

// <unk>, then what occurs often enough, in order of appearance, and <eos>. `name` begins the UserError about a text
// that has nothing, or is none.
Vocabulary text_vocabulary(std::string_view training_text, const std::string& name,
                           const TextOptions& options);

// The text as numbers; what the vocabulary has not is <unk>.
std::vector<std::int32_t> encode_text(std::string_view text, const std::string& name,
                                      const Vocabulary& vocabulary, const TextOptions& options);

// A text in three parts: nine tenths of its bytes to train on, half of the rest each to choose by and to test. Cut after
// the end of a line, where a part has one, else after a space or a character.
struct TextParts {
  std::string_view train, valid, test;
};
TextParts cut_text(std::string_view text);

// train.txt, valid.txt and test.txt of a folder; or one file, cut.
Corpus open_text(const std::filesystem::path& path, const TextOptions& options);

}  // namespace lowtide
