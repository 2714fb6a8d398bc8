#include <cstddef>
#include <cstdint>

#include "lowtide/base/error.h"
#include "lowtide/data/text/corpus.h"
#include "lowtide/data/text/plain_text.h"
#include "lowtide/data/text/text_batches.h"

namespace {

// The three parts are the whole; the training part has no word unknown that is there often enough.
void check_plain_text(std::string_view text) {
  using namespace lowtide;
  const TextParts parts = cut_text(text);
  if (parts.train.size() + parts.valid.size() + parts.test.size() != text.size()) __builtin_trap();
  for (const TextOptions& options : {TextOptions{false, 1}, TextOptions{true, 1}, TextOptions{false, 2}}) {
    try {
      const Vocabulary vocabulary = text_vocabulary(parts.train, "input", options);
      for (const std::int32_t token : encode_text(parts.train, "input", vocabulary, options)) {
        if (token < 0 || token >= vocabulary.size()) __builtin_trap();
        if (token == 0 && options.min_count == 1 && (options.characters || text.find("<unk>") == text.npos))
          __builtin_trap();
      }
      encode_text(parts.valid, "input", vocabulary, options);
    } catch (const UserError&) {
    }
  }
}

}  // namespace

// A text that was read can be read again with its own vocabulary, to the same numbers; every window of it
// holds numbers of words.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lowtide;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    Vocabulary vocabulary;
    const auto tokens = parse_training_text(text, "input", vocabulary);
    if (parse_text(text, "input", vocabulary) != tokens) __builtin_trap();
    TextBatches batches(tokens, 3, 5);
    for (std::int64_t i = 0; i < batches.windows_per_epoch(); ++i) {
      for (const std::int64_t target : batches.next().targets) {
        if (target < 0 || target >= vocabulary.size()) __builtin_trap();
      }
    }
  } catch (const UserError&) {
  }
  check_plain_text(text);
  return 0;
}
