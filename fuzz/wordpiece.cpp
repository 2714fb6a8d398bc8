#include "lowtide/data/text/wordpiece.h"

#include <cstddef>
#include <cstdint>

#include "lowtide/base/error.h"
#include "lowtide/data/text/basic_tokenizer.h"
#include "lowtide/data/text/pair_encoding.h"
#include "lowtide/data/text/unicode.h"

// A zero byte parts a vocabulary from a text; the same text is encoded with a fixed vocabulary too.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lowtide;
  static const WordPiece kFixed("[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n##a\nb\n##b\ne\n##e\n,\n", "fixed", true);
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t middle = std::min(input.find('\0'), input.size());
  const std::string_view text = input.substr(std::min(middle + 1, input.size()));
  const auto check = [&](const WordPiece& pieces) {
    const auto ids = pieces.encode(text);
    for (const std::int32_t id : ids) {
      if (id < 0 || id >= pieces.vocabulary().size()) __builtin_trap();
    }
    if (encode_pair(pieces, ids, ids, 16).ids.size() > 16) __builtin_trap();
  };
  check(kFixed);
  // Words hold what was cut once: cut again they stay.
  for (const std::u32string& word : basic_words(text, false)) {
    const auto again = basic_words(encode_utf8(word), false);
    if (again.size() != 1 || again[0] != word) __builtin_trap();
  }
  try {
    check(WordPiece(input.substr(0, middle), "input", false));
  } catch (const UserError&) {
  }
  return 0;
}
