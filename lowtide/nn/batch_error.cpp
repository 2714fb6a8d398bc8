#include "lowtide/nn/batch_error.h"

namespace lowtide {

LayerError quantise_batch_error(const LayerCall& call, const at::Tensor& gradient, std::int64_t items) {
  const at::Tensor blocks = gradient.contiguous().view({items, -1, gradient.size(-1)});
  const at::Tensor rows = blocks.view({-1, gradient.size(-1)});
  if (is_float_bits(call.bits.backward)) return call.quantise_error(rows);
  return call.quantise_error(rows, measure_position_ranges(blocks));
}

}  // namespace lowtide
