#include "lowtide/data/stream.h"

#include <algorithm>
#include <thread>

namespace lowtide {

LoaderOptions with_defaults(LoaderOptions options) {
  LOWTIDE_CHECK(options.batch_size >= 1, "a batch of at least one");
  if (options.threads < 1)
    options.threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 4u));
  if (options.prefetch < 1) options.prefetch = 2 * options.threads;
  return options;
}

}  // namespace lowtide
