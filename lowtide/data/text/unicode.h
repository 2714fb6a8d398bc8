#pragma once

#include <string>
#include <string_view>

namespace lowtide {

bool is_utf8(std::string_view text);

// Bytes that are not UTF-8 are left out.
std::u32string decode_utf8(std::string_view text);
std::string encode_utf8(std::u32string_view text);

// The general categories of the Unicode standard that tokenisers ask for.
bool is_control(char32_t c);      // Cc, Cf; tab and line ends too
bool is_space(char32_t c);        // Zs
bool is_separator(char32_t c);    // Zs, Zl, Zp
bool is_punctuation(char32_t c);  // P…

// Lower case by the rules that depend on no language, as Python has them: İ becomes i and a dot above, and a
// capital sigma that ends a word becomes ς.
std::u32string lower_case(std::u32string_view text);

// Canonical decomposition (NFD) without the marks that take no space (Mn): é becomes e.
std::u32string strip_accents(std::u32string_view text);

}  // namespace lowtide
