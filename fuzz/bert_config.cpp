#include "lowtide/models/bert_config.h"

#include <cstddef>
#include <cstdint>

#include "fuzz/deep.h"
#include "lowtide/base/error.h"

// A config.json either is a UserError of one line, or a network whose heads are of equal size.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lowtide;
  try {
    const BertConfig config = parse_bert_config(deepened(data, size), "config.json");
    if (config.heads < 1 || config.hidden % config.heads != 0 || config.positions < 1) __builtin_trap();
  } catch (const UserError& error) {
    if (std::string(error.what()).find('\n') != std::string::npos) __builtin_trap();
  }
  return 0;
}
