#include "lowtide/data/text/wordpiece.h"

#include <fmt/format.h>

#include <algorithm>

#include "lowtide/base/error.h"
#include "lowtide/data/text/basic_tokenizer.h"
#include "lowtide/data/text/unicode.h"
#include "lowtide/io/json_check.h"
#include "lowtide/io/lines.h"
#include "lowtide/io/mapped_file.h"

namespace lowtide {
namespace {

constexpr std::size_t kMaxCharacters = 100;  // of a word
constexpr std::string_view kContinues = "##";

std::int32_t special(const Vocabulary& vocabulary, std::string_view piece, const std::string& name) {
  const auto number = vocabulary.find(piece);
  if (!number) {
    throw UserError(fmt::format("{}: no {} in it; expected BERT's vocabulary, a piece a line", name, piece));
  }
  return *number;
}

bool continues_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

}  // namespace

WordPiece::WordPiece(std::string_view text, const std::string& name, bool lower) : lower_(lower) {
  for_each_line(text, [&](std::string_view piece, std::size_t number) {
    if (piece.empty()) throw UserError(fmt::format("{}:{}: empty; expected a piece a line", name, number));
    if (vocabulary_.add(piece) != static_cast<std::int32_t>(number - 1)) {
      throw UserError(fmt::format("{}:{}: the piece {} for the second time; expected each once", name, number,
                                  shown(piece)));
    }
    longest_ = std::max(longest_, piece.size());
  });
  padding_ = special(vocabulary_, "[PAD]", name);
  unknown_ = special(vocabulary_, "[UNK]", name);
  classifier_ = special(vocabulary_, "[CLS]", name);
  separator_ = special(vocabulary_, "[SEP]", name);
}

std::vector<std::int32_t> WordPiece::encode(std::string_view text) const {
  std::vector<std::int32_t> ids;
  for (const std::u32string& word : basic_words(text, lower_)) append_pieces(word, ids);
  return ids;
}

void WordPiece::append_pieces(std::u32string_view word, std::vector<std::int32_t>& ids) const {
  if (word.size() > kMaxCharacters) return ids.push_back(unknown_);
  const std::size_t pieces_before = ids.size();
  std::string left = encode_utf8(word);
  std::size_t prefix = 0;  // bytes of ## at the front of what is left
  while (left.size() > prefix) {
    std::optional<std::int32_t> piece;
    std::size_t end = std::min(left.size(), longest_);
    for (; end > prefix; --end) {
      if (end < left.size() && continues_character(left[end])) continue;
      piece = vocabulary_.find(std::string_view(left).substr(0, end));
      if (piece) break;
    }
    if (!piece) {
      ids.resize(pieces_before);
      return ids.push_back(unknown_);
    }
    ids.push_back(*piece);
    left.replace(0, end, kContinues);
    prefix = kContinues.size();
  }
}

WordPiece open_wordpiece(const std::filesystem::path& vocabulary, bool lower) {
  return {text_of(MappedFile(vocabulary).bytes()), vocabulary.string(), lower};
}

}  // namespace lowtide
