#include "lowtide/data/text/basic_tokenizer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "lowtide/data/text/unicode.h"

namespace lowtide {
namespace {

// The blocks of CJK ideographs; kana and Hangul are written with words and not among them.
bool is_ideograph(char32_t c) {
  constexpr std::array<std::pair<char32_t, char32_t>, 8> kBlocks = {{{0x4E00, 0x9FFF},
                                                                     {0x3400, 0x4DBF},
                                                                     {0x20000, 0x2A6DF},
                                                                     {0x2A700, 0x2B73F},
                                                                     {0x2B740, 0x2B81F},
                                                                     {0x2B820, 0x2CEAF},
                                                                     {0xF900, 0xFAFF},
                                                                     {0x2F800, 0x2FA1F}}};
  return std::any_of(kBlocks.begin(), kBlocks.end(),
                     [c](const auto& block) { return c >= block.first && c <= block.second; });
}

// All of ASCII that is neither letter, digit nor control counts, also $, ^ and ` which Unicode calls symbols.
bool cuts_words(char32_t c) {
  const bool ascii =
      (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126);
  return ascii || is_punctuation(c);
}

std::vector<std::u32string> cut_at_white_space(std::u32string_view text) {
  std::vector<std::u32string> words;
  bool within = false;
  const auto add = [&](char32_t c) {
    if (!within) words.emplace_back();
    words.back().push_back(c);
    within = true;
  };
  for (const char32_t c : text) {
    if (c == U'\t' || c == U'\n' || c == U'\r' || is_separator(c)) {
      within = false;
    } else if (is_ideograph(c)) {
      within = false;
      add(c);
      within = false;
    } else if (c != U'\uFFFD' && !is_control(c)) {
      add(c);
    }
  }
  return words;
}

void cut_at_punctuation(std::u32string_view word, std::vector<std::u32string>& words) {
  bool within = false;
  for (const char32_t c : word) {
    const bool alone = cuts_words(c);
    if (!within || alone) words.emplace_back();
    words.back().push_back(c);
    within = !alone;
  }
}

}  // namespace

std::vector<std::u32string> basic_words(std::string_view text, bool lower) {
  std::vector<std::u32string> words;
  for (const std::u32string& word : cut_at_white_space(decode_utf8(text))) {
    cut_at_punctuation(lower ? strip_accents(lower_case(word)) : word, words);
  }
  return words;
}

}  // namespace lowtide
