#include <cstddef>
#include <cstdint>

#include "lowtide/base/error.h"
#include "lowtide/data/text/corpus.h"
#include "lowtide/data/text/text_batches.h"

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
  return 0;
}
