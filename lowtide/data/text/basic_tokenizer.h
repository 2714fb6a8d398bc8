#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lowtide {

// The words of a text, as BERT's BasicTokenizer (https://github.com/google-research/bert, tokenization.py)
// cuts it: control characters, U+FFFD and bytes that are not UTF-8 are dropped; words are cut at white space,
// and around every CJK ideograph and punctuation character, each of which is a word of its own; an uncased
// vocabulary has the words in lower case and without accents.
std::vector<std::u32string> basic_words(std::string_view text, bool lower);

}  // namespace lowtide
