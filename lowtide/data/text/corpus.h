#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "lowtide/data/split.h"
#include "lowtide/data/text/vocabulary.h"

namespace lowtide {

// Text for a language model, as the numbers of its words.
struct Corpus {
  Vocabulary vocabulary;  // of the training text, in order of appearance
  std::vector<std::int32_t> train;
  std::vector<std::int32_t> valid;
  std::vector<std::int32_t> test;
  std::string place;
  std::string kind = "words";  // what the tokens are
  std::string note;            // about the tokens

  const std::vector<std::int32_t>& of(Split split) const {
    return split == Split::kTrain ? train : split == Split::kValid ? valid : test;
  }
  std::string describe() const;  // one line
};

// A line is a sentence, its words are separated by spaces, and <eos> follows it; a line without words is <eos>
// alone. `name` begins the UserError about a text that has no words, or is none.
std::vector<std::int32_t> parse_training_text(std::string_view text, const std::string& name,
                                              Vocabulary& vocabulary);

// The same for a text whose words must be known: one that is not becomes <unk> where the vocabulary has that,
// and is a UserError with file, line and word where it has not.
std::vector<std::int32_t> parse_text(std::string_view text, const std::string& name,
                                     const Vocabulary& vocabulary);

// Formats, as their users have them on disk:
//   ptb       ptb.train.txt, ptb.valid.txt, ptb.test.txt (Penn Treebank, as Mikolov prepared it)
//   wikitext  wiki.train.tokens, wiki.valid.tokens, wiki.test.tokens (WikiText-2, WikiText-103)
Corpus open_corpus(const std::string& format, const std::filesystem::path& folder);

}  // namespace lowtide
