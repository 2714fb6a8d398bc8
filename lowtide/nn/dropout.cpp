#include "lowtide/nn/dropout.h"

#include <torch/torch.h>

namespace lowtide {

// A factor of 1 rounded stochastically to one bit with the codes' values 0 and 1/keep is 1/keep with probability `keep`:
// the quantiser draws the mask, on any device and by the counter.
at::Tensor DropoutImpl::forward(const at::Tensor& x) const {
  if (share_ == 0 || !is_training()) return x;
  const double keep = 1 - share_;
  const at::Tensor one = at::ones_like(x, at::MemoryFormat::Contiguous).detach();
  const Range range{at::zeros({1}, one.options()), at::full({1}, 1 / keep, one.options())};
  return x * decode(encode(one, range, 1, Noise::drawn(noise_key())));
}

}  // namespace lowtide
