#include "lowtide/data/graph/musae.h"

#include <cstddef>
#include <cstdint>

#include "fuzz/deep.h"
#include "lowtide/base/error.h"

// The input as each of the three files, the classes of four nodes being given for the other two.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lowtide;
  constexpr std::int64_t kNodes = 4;
  const std::string text = deepened(data, size);
  const auto source = lines_of_text(text, "input");
  const auto attempt = [](auto parse) {
    try {
      parse();
    } catch (const UserError&) {
    }
  };
  attempt([&] {
    for (const std::string& name : parse_musae_classes(source)) {
      if (name.empty()) __builtin_trap();
    }
  });
  attempt([&] { csr_from_edges(kNodes, parse_musae_edges(source, kNodes)); });
  attempt([&] {
    const NodeFeatures features = parse_musae_features(text, "input", kNodes);
    if (features.sparse.rows() != kNodes) __builtin_trap();
    for (const std::int32_t column : features.sparse.indices) {
      if (column < 0 || column >= features.columns) __builtin_trap();
    }
  });
  return 0;
}
