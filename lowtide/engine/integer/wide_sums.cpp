#include "lowtide/engine/integer/wide_sums.h"

#include "lowtide/base/simd.h"

namespace lowtide::integer {

LOWTIDE_SIMD void add_sums(const std::int32_t* from, std::int64_t n, std::int32_t* to) {
  for (std::int64_t i = 0; i < n; ++i) to[i] += from[i];
}
LOWTIDE_SIMD void add_sums(const std::int32_t* from, std::int64_t n, std::int64_t* to) {
  for (std::int64_t i = 0; i < n; ++i) to[i] += from[i];
}
LOWTIDE_SIMD void add_sums(const std::int64_t* from, std::int64_t n, std::int64_t* to) {
  for (std::int64_t i = 0; i < n; ++i) to[i] += from[i];
}

template <typename Sum>
void WideSums::add_or_copy(const Sum* sums) {
  const std::lock_guard lock(adding_);
  if (empty_) {
    std::copy_n(sums, count_, total_.get());
  } else {
    add_sums(sums, count_, total_.get());
  }
  empty_ = false;
}

void WideSums::add(const std::int32_t* sums) { add_or_copy(sums); }
void WideSums::add(const std::int64_t* sums) { add_or_copy(sums); }

}  // namespace lowtide::integer
