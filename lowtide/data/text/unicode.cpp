#include "lowtide/data/text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "lowtide/base/error.h"

namespace lowtide {
namespace {

// Calls take(character), or take(−1) for a byte that belongs to none.
template <typename Take>
void for_each_character(std::string_view text, Take take) {
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  auto left = static_cast<utf8proc_ssize_t>(text.size());
  while (left > 0) {
    utf8proc_int32_t c = -1;
    const utf8proc_ssize_t taken = std::max<utf8proc_ssize_t>(utf8proc_iterate(bytes, left, &c), 1);
    take(c);
    bytes += taken;
    left -= taken;
  }
}

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

bool within(char32_t c, char32_t first, char32_t last) { return c >= first && c <= last; }

// The property Cased, but for letters that are Case_Ignorable as well: letters with a case, and the few
// Other_Uppercase and Other_Lowercase that are not (PropList.txt): ª º, Roman numerals, letters in circles and
// squares.
bool is_cased(char32_t c) {
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL || kind == UTF8PROC_CATEGORY_LT ||
         c == 0xAA || c == 0xBA || within(c, 0x2160, 0x217F) || within(c, 0x24B6, 0x24E9) ||
         within(c, 0x1F130, 0x1F149) || within(c, 0x1F150, 0x1F169) || within(c, 0x1F170, 0x1F189);
}

// The property Case_Ignorable: marks, modifiers and formats, and what may stand within a word (Word_Break =
// MidLetter, MidNumLet, Single_Quote).
bool is_case_ignorable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return std::u32string_view(
                 U"'.:\u00B7\u0387\u055F\u05F4\u2018\u2019\u2024\u2027\uFE13\uFE52\uFE55\uFF07\uFF0E\uFF1A")
                 .find(c) != std::u32string_view::npos;
  }
}

// Final_Sigma of SpecialCasing.txt: a cased letter before it and none after, ignorable ones aside.
bool ends_word(std::u32string_view text, std::size_t sigma) {
  std::size_t before = sigma;
  while (before > 0 && is_case_ignorable(text[before - 1])) --before;
  if (before == 0 || !is_cased(text[before - 1])) return false;
  std::size_t after = sigma + 1;
  while (after < text.size() && is_case_ignorable(text[after])) ++after;
  return after == text.size() || !is_cased(text[after]);
}

}  // namespace

bool is_utf8(std::string_view text) {
  bool whole = true;
  for_each_character(text, [&](utf8proc_int32_t c) { whole = whole && c >= 0; });
  return whole;
}

std::u32string decode_utf8(std::string_view text) {
  std::u32string decoded;
  decoded.reserve(text.size());
  for_each_character(text, [&](utf8proc_int32_t c) {
    if (c >= 0) decoded.push_back(static_cast<char32_t>(c));
  });
  return decoded;
}

std::string encode_utf8(std::u32string_view text) {
  std::string encoded;
  encoded.reserve(text.size());
  for (const char32_t c : text) {
    utf8proc_uint8_t bytes[4];
    const auto size = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes);
    encoded.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size));
  }
  return encoded;
}

bool is_control(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_CC || category(c) == UTF8PROC_CATEGORY_CF;
}

bool is_space(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ZS; }

bool is_separator(char32_t c) {
  return is_space(c) || category(c) == UTF8PROC_CATEGORY_ZL || category(c) == UTF8PROC_CATEGORY_ZP;
}

bool is_punctuation(char32_t c) {
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_PC && kind <= UTF8PROC_CATEGORY_PO;
}

std::u32string lower_case(std::u32string_view text) {
  std::u32string lower;
  lower.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == U'\u0130') {
      lower += U"i\u0307";
    } else if (text[i] == U'\u03A3') {
      lower += ends_word(text, i) ? U'\u03C2' : U'\u03C3';
    } else {
      lower += static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(text[i])));
    }
  }
  return lower;
}

std::u32string strip_accents(std::u32string_view text) {
  const std::string utf8 = encode_utf8(text);
  // A character decomposes into four at most (table 12 of Unicode Standard Annex 15).
  std::vector<utf8proc_int32_t> decomposed(4 * text.size());
  const auto count = utf8proc_decompose(reinterpret_cast<const utf8proc_uint8_t*>(utf8.data()),
                                        static_cast<utf8proc_ssize_t>(utf8.size()), decomposed.data(),
                                        static_cast<utf8proc_ssize_t>(decomposed.size()),
                                        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE));
  LOWTIDE_CHECK(count >= 0 && static_cast<std::size_t>(count) <= decomposed.size(), "text is decomposed");
  std::u32string stripped;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    const auto c = static_cast<char32_t>(decomposed[i]);
    if (category(c) != UTF8PROC_CATEGORY_MN) stripped.push_back(c);
  }
  return stripped;
}

}  // namespace lowtide
