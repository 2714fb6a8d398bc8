#include "lowtide/io/lease.h"

#include <cstdint>
#include <cstdlib>

#include "fuzz/deep.h"

// A lease's text names a holder that is the same after it was written, or nobody.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lowtide;
  const auto holder = parse_lease_holder(deepened(data, size));
  if (holder && parse_lease_holder(to_text(*holder)) != holder) std::abort();
  return 0;
}
