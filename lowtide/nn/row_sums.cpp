#include "lowtide/nn/row_sums.h"

#include <algorithm>
#include <vector>

#include "lowtide/base/cuda_stream.h"
#include "lowtide/base/parallel.h"
#include "lowtide/base/simd.h"
#include "lowtide/base/torch.h"
#include "lowtide/nn/row_kernels.h"
#include "lowtide/quant/quantizer.h"

namespace lowtide {
namespace {

// A chunk of rows is summed in floats, at most 256 terms; the chunks' sums are added in double.
constexpr std::int64_t kMostRows = 256, kLeastRows = 16;
// A chunk fills a first-level cache of 32 KB; a few of them are not worth waking a thread.
constexpr std::int64_t kChunkElements = 8192, kChunksPerThread = 16;
// Columns whose partial sums are joined at once.
constexpr std::int64_t kColumnBlock = 1024;

LOWTIDE_SIMD void add_rows(const float* x, std::int64_t rows, std::int64_t columns, float* sum) {
  std::copy_n(x, columns, sum);
  for (std::int64_t i = 1; i < rows; ++i) {
    x += columns;
    for (std::int64_t c = 0; c < columns; ++c) sum[c] += x[c];
  }
}

LOWTIDE_SIMD void add_weighted_rows(const float* x, const float* weight, std::int64_t rows,
                                    std::int64_t columns, float* sum) {
  for (std::int64_t c = 0; c < columns; ++c) sum[c] = weight[0] * x[c];
  for (std::int64_t i = 1; i < rows; ++i) {
    x += columns;
    for (std::int64_t c = 0; c < columns; ++c) sum[c] += weight[i] * x[c];
  }
}

LOWTIDE_SIMD void join(const float* partial, std::int64_t chunks, std::int64_t stride, std::int64_t columns,
                       float* sum) {
  double total[kColumnBlock] = {};
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk, partial += stride) {
    for (std::int64_t c = 0; c < columns; ++c) total[c] += static_cast<double>(partial[c]);
  }
  for (std::int64_t c = 0; c < columns; ++c) sum[c] = static_cast<float>(total[c]);
}

// `weight` may be null. Chunks are cut by the matrix's size alone, and joined in order.
at::Tensor sum_on_cpu(const at::Tensor& x, const float* weight) {
  const std::int64_t rows = x.size(0), columns = x.size(1);
  at::Tensor sum = at::zeros({columns}, x.options());
  if (x.numel() == 0) return sum;
  const std::int64_t chunk_rows = std::clamp(kChunkElements / columns, kLeastRows, kMostRows);
  const std::int64_t chunks = (rows + chunk_rows - 1) / chunk_rows;
  std::vector<float> partial(static_cast<std::size_t>(chunks * columns));
  const float* values = x.data_ptr<float>();
  const std::int64_t grain =
      std::max<std::int64_t>(1, kChunksPerThread * kChunkElements / (chunk_rows * columns));
  parallel_for(chunks, grain, [&](std::int64_t chunk) {
    const std::int64_t first = chunk * chunk_rows, count = std::min(chunk_rows, rows - first);
    float* to = partial.data() + chunk * columns;
    if (weight != nullptr) {
      add_weighted_rows(values + first * columns, weight + first, count, columns, to);
    } else {
      add_rows(values + first * columns, count, columns, to);
    }
  });
  float* to = sum.data_ptr<float>();
  parallel_for((columns + kColumnBlock - 1) / kColumnBlock, kChunksPerThread, [&](std::int64_t block) {
    const std::int64_t first = block * kColumnBlock;
    join(partial.data() + first, chunks, columns, std::min(kColumnBlock, columns - first), to + first);
  });
  return sum;
}

bool is_plain(const at::Tensor& x) { return x.device().is_cpu() && x.scalar_type() == at::kFloat; }

#if defined(LOWTIDE_WITH_CUDA)
bool has_kernel(const Quantized& x) { return x.code.is_cuda() && x.code.scalar_type() == at::kByte; }

// `values`: where they go, or nothing.
at::Tensor sum_on_gpu(const Quantized& x, const at::Tensor& factor, float* values) {
  const at::Tensor code = x.code.contiguous();
  const auto numbers = x.scale.options();
  SumCodesArguments a;
  a.rows = code.size(0);
  a.columns = static_cast<int>(code.size(1));
  at::Tensor sum = at::empty({code.size(1)}, numbers);
  const at::Tensor partial = at::empty({sum_parts(a.rows) * code.size(1)}, numbers);
  a.code = code.data_ptr<std::uint8_t>();
  a.scale = x.scale.data_ptr<float>();
  a.offset = x.offset.data_ptr<float>();
  a.by_row = x.scale.numel() > 1;
  a.factor = factor.defined() ? factor.data_ptr<float>() : nullptr;
  a.y = values;
  a.sum = sum.data_ptr<float>();
  a.partial = partial.data_ptr<float>();
  sum_codes_on_gpu(a, current_cuda_stream());
  return sum;
}
#endif

struct RepeatRows : torch::autograd::Function<RepeatRows> {
  static at::Tensor forward(torch::autograd::AutogradContext* /*context*/, const at::Tensor& x,
                            std::int64_t count) {
    std::vector<std::int64_t> sizes = x.sizes().vec();
    sizes.insert(sizes.begin(), count);
    return x.unsqueeze(0).expand(sizes);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* /*context*/,
                                                 const torch::autograd::variable_list& gradients) {
    const at::Tensor& gradient = gradients[0];
    const std::vector<std::int64_t> sizes(gradient.sizes().begin() + 1, gradient.sizes().end());
    return {sum_rows(gradient.reshape({gradient.size(0), -1})).view(sizes), {}};
  }
};

}  // namespace

at::Tensor sum_rows(const at::Tensor& x) {
  const at::Tensor matrix = x.reshape({-1, x.size(-1)});
  return is_plain(matrix) ? sum_on_cpu(matrix.contiguous(), nullptr) : matrix.sum(0);
}

at::Tensor sum_rows(const Quantized& x) {
#if defined(LOWTIDE_WITH_CUDA)
  if (has_kernel(x)) return sum_on_gpu(x, {}, nullptr);
#endif
  return sum_rows(decode(x));
}

DecodedRows decode_and_sum(const Quantized& x, const at::Tensor& factor) {
#if defined(LOWTIDE_WITH_CUDA)
  if (has_kernel(x)) {
    const at::Tensor values = at::empty(x.code.sizes(), x.scale.options());
    return {values, sum_on_gpu(x, factor, values.data_ptr<float>())};
  }
#endif
  const at::Tensor values = decode(x);
  return {factor.defined() ? values * factor.unsqueeze(1) : values, sum_rows(values)};
}

at::Tensor sum_rows(const at::Tensor& x, const at::Tensor& weight) {
  if (!is_plain(x)) return at::matmul(weight, x);
  const at::Tensor factors = weight.contiguous();  // lives as long as its pointer is used
  return sum_on_cpu(x.contiguous(), factors.data_ptr<float>());
}

at::Tensor repeat_rows(const at::Tensor& x, std::int64_t count) { return RepeatRows::apply(x, count); }

}  // namespace lowtide
