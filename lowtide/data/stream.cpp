#include "lowtide/data/stream.h"

#include <algorithm>

#include "lowtide/base/cpus.h"

namespace lowtide {

LoaderOptions with_defaults(LoaderOptions options) {
  LOWTIDE_CHECK(options.batch_size >= 1, "a batch of at least one");
  if (options.threads < 1) options.threads = std::min(usable_cpus(), 4);
  if (options.prefetch < 1) options.prefetch = 2 * options.threads;
  return options;
}

}  // namespace lowtide
