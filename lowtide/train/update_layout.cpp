#include "lowtide/train/update_layout.h"

#include "lowtide/base/error.h"

namespace lowtide {
namespace {

// A dimension of one element is never stepped along: its stride says nothing. (A 1×1 convolution's weights have
// other strides in channels-last order, and the same place in memory.)
bool same_layout(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes()) return false;
  for (std::int64_t i = 0; i < a.dim(); ++i) {
    if (a.size(i) != 1 && a.stride(i) != b.stride(i)) return false;
  }
  return true;
}

}  // namespace

at::Tensor laid_out_as(const at::Tensor& parameter, const at::Tensor& gradient) {
  LOWTIDE_CHECK(parameter.is_non_overlapping_and_dense() && parameter.scalar_type() == at::kFloat,
                "a parameter is floats without gaps");
  if (same_layout(parameter, gradient)) return gradient;
  return at::empty_strided(parameter.sizes(), parameter.strides(), gradient.options()).copy_(gradient);
}

float* state_of(const at::Tensor& parameter, const at::Tensor& state) {
  LOWTIDE_CHECK(same_layout(parameter, state), "an optimiser's state is laid out as the parameter is");
  return state.data_ptr<float>();
}

}  // namespace lowtide
