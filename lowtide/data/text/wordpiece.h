#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "lowtide/data/text/vocabulary.h"

namespace lowtide {

// BERT's tokeniser: words are cut into the longest pieces that the vocabulary has, from the left; pieces that
// continue a word begin with ##. A word that cannot be cut so, or has more than 100 characters, is [UNK].
class WordPiece {
 public:
  // `text`: a piece a line, numbered from 0, as in vocab.txt. `lower` for an uncased vocabulary. `name` begins
  // the UserError about an empty line, a piece that is there twice, or a special piece that is not there.
  WordPiece(std::string_view text, const std::string& name, bool lower);

  std::vector<std::int32_t> encode(std::string_view text) const;

  const Vocabulary& vocabulary() const { return vocabulary_; }
  std::int32_t padding() const { return padding_; }
  std::int32_t unknown() const { return unknown_; }
  std::int32_t classifier() const { return classifier_; }  // [CLS]
  std::int32_t separator() const { return separator_; }    // [SEP]

 private:
  void append_pieces(std::u32string_view word, std::vector<std::int32_t>& ids) const;

  Vocabulary vocabulary_;
  bool lower_;
  std::size_t longest_ = 0;  // piece, in bytes
  std::int32_t padding_ = 0;
  std::int32_t unknown_ = 0;
  std::int32_t classifier_ = 0;
  std::int32_t separator_ = 0;
};

WordPiece open_wordpiece(const std::filesystem::path& vocabulary, bool lower);

}  // namespace lowtide
