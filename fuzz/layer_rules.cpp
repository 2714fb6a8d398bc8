#include "lowtide/schedule/layer_rules.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fuzz/deep.h"
#include "lowtide/base/error.h"

// The first line is a layer's name, the others are rules: each a UserError, or printed as what reads the
// same.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lowtide;
  const std::string input = deepened(data, size);
  std::string_view rest(input);
  const auto next_line = [&rest] {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(line.size() < rest.size() ? line.size() + 1 : line.size());
    return line;
  };
  const std::string_view layer = next_line();
  LayerRules rules;
  while (!rest.empty()) {
    try {
      rules.add(next_line());
    } catch (const UserError&) {
    }
  }
  LayerRules again;
  for (const LayerRules::Rule& rule : rules.rules()) again.add(to_string(rule));
  LOWTIDE_CHECK(again == rules, "rules read back differ");
  // A layer that no pattern matches gets the fallback.
  constexpr LayerPrecision kFallback{LayerPrecision::Kind::kFixed, kMostBits};
  const std::string name(layer);
  if (rules.unmatched({name}).size() == rules.rules().size()) {
    LOWTIDE_CHECK(rules.match(layer, kFallback) == kFallback, name);
  }
  return 0;
}
