#include "lowtide/io/jsonl.h"

#include <cstdint>
#include <cstdlib>

#include "fuzz/deep.h"

// Lines that are read must be readable again after they were printed, and equal; all else must be a
// UserError.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lowtide;
  try {
    const Jsonl read = parse_jsonl(deepened(data, size), "input");
    std::string text;
    for (const Json& line : read.lines) text += line.dump() + '\n';
    if (parse_jsonl(text + read.unfinished, "again").lines != read.lines) std::abort();
  } catch (const UserError&) {
  }
  return 0;
}
