#include "lowtide/nn/rounded_rows.h"

#include "lowtide/base/cuda_stream.h"
#include "lowtide/nn/row_kernels.h"

namespace lowtide {
namespace {

#if defined(LOWTIDE_WITH_CUDA)
bool has_kernel(const at::Tensor& x, int bits) {
  return x.is_cuda() && !is_float_bits(bits) && bits <= kByteBits && x.size(1) % 4 == 0 &&
         x.size(1) <= kMostRoundedColumns &&
         reinterpret_cast<std::uintptr_t>(x.data_ptr()) % (4 * sizeof(float)) == 0;
}

const float* floats_of(const at::Tensor& x) { return x.defined() ? x.data_ptr<float>() : nullptr; }
#endif

}  // namespace

at::Tensor rounded_rows(const at::Tensor& given, const at::Tensor& factor, const at::Tensor& bias,
                        DeviceBits bits) {
  const at::Tensor x = given.contiguous();
#if defined(LOWTIDE_WITH_CUDA)
  if (has_kernel(x, bits)) {
    at::Tensor y = at::empty_like(x);
    RoundRowsArguments a;
    a.x = floats_of(x);
    a.factor = floats_of(factor);
    a.bias = floats_of(bias);
    a.bits = bits;
    a.y = y.data_ptr<float>();
    a.rows = x.size(0);
    a.columns = static_cast<int>(x.size(1));
    round_rows_on_gpu(a, current_cuda_stream());
    return y;
  }
#endif
  Quantized rows = encode_rows(x, bits);
  if (factor.defined() && rows.bits == 0) {
    rows.code = rows.code * factor.unsqueeze(1);
  } else if (factor.defined()) {
    rows.scale = rows.scale * factor;
    rows.offset = rows.offset * factor;
  }
  const at::Tensor y = decode(rows);
  return bias.defined() ? y + bias : y;
}

at::Tensor rounded(const at::Tensor& x, DeviceBits bits) {
  return rounded_rows(x.unsqueeze(0), {}, {}, bits)[0];
}

}  // namespace lowtide
