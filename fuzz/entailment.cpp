#include "lowtide/data/text/entailment.h"

#include <cstddef>
#include <cstdint>

#include "fuzz/deep.h"
#include "lowtide/base/error.h"
#include "lowtide/data/text/unicode.h"

namespace {

void check(const lowtide::EntailmentData& read) {
  using namespace lowtide;
  for (const SentencePair& pair : read.pairs) {
    if (!is_utf8(pair.premise) || !is_utf8(pair.hypothesis)) __builtin_trap();
    if (pair.label != SentencePair::kNoLabel && pair.label >= static_cast<std::int32_t>(read.classes.size()))
      __builtin_trap();
  }
}

}  // namespace

// The input as .tsv and as .jsonl, in one language and in all; and as pairs with labels of any kind.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lowtide;
  const std::string text = deepened(data, size);
  const auto source = lines_of_text(text, "input");
  for (const auto parse : {parse_entailment_tsv, parse_entailment_jsonl}) {
    for (const char* language : {"", "de"}) {
      try {
        check(parse(source, language));
      } catch (const UserError&) {
      }
    }
  }
  const PairLabels choices[] = {
      {}, {{"1", "2", "3"}}, {{"sentence1", "sentence2", "label"}}, {{}, {"neutral", "yes"}}};
  for (const PairLabels& wanted : choices) {
    try {
      check(parse_labelled_pairs(source, wanted));
    } catch (const UserError&) {
    }
  }
  return 0;
}
