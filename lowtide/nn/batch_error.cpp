#include "lowtide/nn/batch_error.h"

#include "lowtide/base/error.h"

namespace lowtide {

LayerError quantise_batch_error(const LayerCall& call, const at::Tensor& gradient, std::int64_t items) {
  LOWTIDE_CHECK(call.input.code.defined(), "a layer's call serves one backward pass");
  const at::Tensor blocks = gradient.contiguous().view({items, -1, gradient.size(-1)});
  const at::Tensor rows = blocks.view({-1, gradient.size(-1)});
  const Quantized unquantised{rows, {}, {}, 0};
  if (is_float_bits(call.bits.backward)) return {unquantised, unquantised};
  const at::Tensor low = blocks.amin({0, 2}), high = blocks.amax({0, 2});
  const Range range{low.repeat({items}), (high - low).repeat({items})};
  const Quantized error = encode(rows, range, call.bits.backward, call.noise);
  return {error, call.bifurcate ? unquantised : error};
}

}  // namespace lowtide
