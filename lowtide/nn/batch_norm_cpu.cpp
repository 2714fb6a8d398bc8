#include "lowtide/nn/batch_norm_cpu.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <vector>

#include "lowtide/base/error.h"
#include "lowtide/base/simd.h"

namespace lowtide::cpu {
namespace {

// A sum is cut into chunks of about this many elements: 64 KiB of floats, which a second-level cache holds
// for the second look, and few enough additions that float32 partial sums lose nothing that matters.
constexpr std::int64_t kChunkElements = 16384;

struct Layout {
  std::int64_t rows, channels, rows_a_chunk, chunks;

  explicit Layout(const at::Tensor& x)
      : rows(x.numel() / x.size(1)),
        channels(x.size(1)),
        rows_a_chunk(std::max<std::int64_t>(1, kChunkElements / channels)),
        chunks((rows + rows_a_chunk - 1) / rows_a_chunk) {}

  std::int64_t chunk_rows(std::int64_t chunk) const {
    return std::min(rows_a_chunk, rows - chunk * rows_a_chunk);
  }
};

// Of each channel in one chunk: the mean, as a distance from the chunk's first row, and the sum of squared
// distances from the mean; the second look finds the chunk in cache. Numbers that lie close together far from
// 0 keep their digits so: a plain sum of thousands of them loses what tells them apart.
LOWTIDE_SIMD void chunk_moments(const float* x, std::int64_t rows, std::int64_t channels, float* mean,
                                float* squares) {
  std::fill_n(mean, channels, 0.0f);
  std::fill_n(squares, channels, 0.0f);
  for (std::int64_t row = 1; row < rows; ++row) {
    for (std::int64_t c = 0; c < channels; ++c) mean[c] += x[row * channels + c] - x[c];
  }
  for (std::int64_t c = 0; c < channels; ++c) mean[c] /= static_cast<float>(rows);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t c = 0; c < channels; ++c) {
      const float distance = (x[row * channels + c] - x[c]) - mean[c];
      squares[c] += distance * distance;
    }
  }
}

LOWTIDE_SIMD void normalise_rows(const float* x, float* y, std::int64_t rows, std::int64_t channels,
                                 const float* mean, const float* factor, const float* bias) {
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t c = 0; c < channels; ++c) {
      y[row * channels + c] = (x[row * channels + c] - mean[c]) * factor[c] + bias[c];
    }
  }
}

// Σ dy and Σ dy (x - mean) of each channel in one chunk.
LOWTIDE_SIMD void chunk_gradient_sums(const float* dy, const float* x, std::int64_t rows,
                                      std::int64_t channels, const float* mean, float* sum, float* product) {
  std::fill_n(sum, channels, 0.0f);
  std::fill_n(product, channels, 0.0f);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t c = 0; c < channels; ++c) {
      const std::int64_t i = row * channels + c;
      sum[c] += dy[i];
      product[c] += dy[i] * (x[i] - mean[c]);
    }
  }
}

// dx = factor (dy - shift - (x - mean) slope)
LOWTIDE_SIMD void input_gradient_rows(const float* dy, const float* x, float* dx, std::int64_t rows,
                                      std::int64_t channels, const float* mean, const float* factor,
                                      const float* shift, const float* slope) {
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t c = 0; c < channels; ++c) {
      const std::int64_t i = row * channels + c;
      dx[i] = factor[c] * (dy[i] - shift[c] - (x[i] - mean[c]) * slope[c]);
    }
  }
}

template <typename Chunk>
void for_each_chunk(const Layout& layout, const Chunk& chunk) {
  constexpr std::int64_t kChunksAThread = 4;  // some 10 µs of work: fewer are not worth waking a thread
  at::parallel_for(0, layout.chunks, kChunksAThread, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i)
      chunk(i, i * layout.rows_a_chunk * layout.channels, layout.chunk_rows(i));
  });
}

std::vector<float> table(const Layout& layout) {
  return std::vector<float>(static_cast<std::size_t>(layout.chunks * layout.channels));
}

void check_layout(const at::Tensor& x) {
  LOWTIDE_CHECK(x.dim() == 4 && x.is_contiguous(at::MemoryFormat::ChannelsLast),
                "batch norm reads channels-last tensors");
}

}  // namespace

BatchStatistics batch_statistics(const at::Tensor& x) {
  check_layout(x);
  const Layout layout(x);
  const float* data = x.data_ptr<float>();
  std::vector<float> means = table(layout), squares = table(layout);
  for_each_chunk(layout, [&](std::int64_t chunk, std::int64_t offset, std::int64_t rows) {
    const std::int64_t at = chunk * layout.channels;
    chunk_moments(data + offset, rows, layout.channels, means.data() + at, squares.data() + at);
  });
  BatchStatistics result{
      at::empty({layout.channels}, x.options().memory_format(at::MemoryFormat::Contiguous)),
      at::empty({layout.channels}, x.options().memory_format(at::MemoryFormat::Contiguous))};
  for (std::int64_t c = 0; c < layout.channels; ++c) {
    // Chan, Golub and LeVeque 1979, equations 2.1: moments of a union from those of its parts.
    double count = 0, mean = 0, sum_of_squares = 0;
    for (std::int64_t chunk = 0; chunk < layout.chunks; ++chunk) {
      const auto at = static_cast<std::size_t>(chunk * layout.channels + c);
      const auto more = static_cast<double>(layout.chunk_rows(chunk));
      const double first = data[chunk * layout.rows_a_chunk * layout.channels + c];
      const double distance = first + means[at] - mean;
      sum_of_squares += squares[at] + distance * distance * count * more / (count + more);
      mean += distance * more / (count + more);
      count += more;
    }
    result.mean.data_ptr<float>()[c] = static_cast<float>(mean);
    result.variance.data_ptr<float>()[c] = static_cast<float>(sum_of_squares / count);
  }
  return result;
}

at::Tensor normalise(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& inverse_deviation,
                     const at::Tensor& weight, const at::Tensor& bias) {
  check_layout(x);
  const Layout layout(x);
  const at::Tensor factor = inverse_deviation * weight;
  at::Tensor y = at::empty_like(x);
  for_each_chunk(layout, [&](std::int64_t, std::int64_t offset, std::int64_t rows) {
    normalise_rows(x.data_ptr<float>() + offset, y.data_ptr<float>() + offset, rows, layout.channels,
                   mean.data_ptr<float>(), factor.data_ptr<float>(), bias.data_ptr<float>());
  });
  return y;
}

BatchNormGradients normalise_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& mean,
                                      const at::Tensor& inverse_deviation, const at::Tensor& weight) {
  check_layout(dy);
  check_layout(x);
  const Layout layout(x);
  std::vector<float> sums = table(layout), products = table(layout);
  for_each_chunk(layout, [&](std::int64_t chunk, std::int64_t offset, std::int64_t rows) {
    const std::int64_t at = chunk * layout.channels;
    chunk_gradient_sums(dy.data_ptr<float>() + offset, x.data_ptr<float>() + offset, rows, layout.channels,
                        mean.data_ptr<float>(), sums.data() + at, products.data() + at);
  });
  BatchNormGradients result{at::empty_like(x), at::empty_like(mean), at::empty_like(mean)};
  at::Tensor shift = at::empty_like(mean), slope = at::empty_like(mean);
  for (std::int64_t c = 0; c < layout.channels; ++c) {
    double sum = 0, product = 0;
    for (std::int64_t chunk = 0; chunk < layout.chunks; ++chunk) {
      sum += sums[static_cast<std::size_t>(chunk * layout.channels + c)];
      product += products[static_cast<std::size_t>(chunk * layout.channels + c)];
    }
    // With x̂ = (x - mean) / deviation: dγ = Σ dy x̂, dβ = Σ dy, dx = γ / deviation (dy - dβ / n - x̂ dγ / n).
    const double inverse = inverse_deviation.data_ptr<float>()[c];
    const auto n = static_cast<double>(layout.rows);
    result.weight.data_ptr<float>()[c] = static_cast<float>(product * inverse);
    result.bias.data_ptr<float>()[c] = static_cast<float>(sum);
    shift.data_ptr<float>()[c] = static_cast<float>(sum / n);
    slope.data_ptr<float>()[c] = static_cast<float>(product * inverse * inverse / n);
  }
  const at::Tensor factor = inverse_deviation * weight;
  for_each_chunk(layout, [&](std::int64_t, std::int64_t offset, std::int64_t rows) {
    input_gradient_rows(dy.data_ptr<float>() + offset, x.data_ptr<float>() + offset,
                        result.input.data_ptr<float>() + offset, rows, layout.channels,
                        mean.data_ptr<float>(), factor.data_ptr<float>(), shift.data_ptr<float>(),
                        slope.data_ptr<float>());
  });
  return result;
}

}  // namespace lowtide::cpu
