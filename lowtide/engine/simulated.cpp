#include "lowtide/engine/simulated.h"

#include <ATen/Parallel.h>
#include <omp.h>

#include <algorithm>
#include <utility>

#include "lowtide/base/torch_compat.h"
#include "lowtide/engine/aggregate.h"
#include "lowtide/engine/pixels_apart.h"

namespace lowtide {
namespace {

at::Tensor convolve(const at::Tensor& x, const at::Tensor& w, const ConvShape& shape) {
  return at::convolution(x, w, {}, shape.stride, shape.padding, shape.dilation, false, {0, 0}, shape.groups);
}

at::Tensor input_gradient(const at::Tensor& dy, const at::Tensor& w, const ConvShape& shape) {
  // The values of the input do not matter to its gradient, only its size and layout do: this is never touched.
  const at::Tensor input_like =
      at::empty(shape.input, dy.options().memory_format(at::MemoryFormat::ChannelsLast));
  return std::get<0>(at::convolution_backward(dy, input_like, w, kNothing, shape.stride, shape.padding,
                                              shape.dilation, false, {0, 0}, shape.groups,
                                              {true, false, false}));
}

at::Tensor weight_gradient(const at::Tensor& dy, const at::Tensor& x, const ConvShape& shape) {
  const at::Tensor weight_like =
      at::empty(shape.weight, x.options().memory_format(at::MemoryFormat::ChannelsLast));
  return std::get<1>(at::convolution_backward(dy, x, weight_like, kNothing, shape.stride, shape.padding,
                                              shape.dilation, false, {0, 0}, shape.groups,
                                              {false, true, false}));
}

// Items [first, last) of the batch.
Quantized slice(const Quantized& q, std::int64_t first, std::int64_t last) {
  return {q.code.slice(0, first, last), q.scale, q.offset, q.bits};
}

// While one lives, this thread's oneDNN primitives are made for one thread. Inside a parallel region that is
// a must: one made for several waits there for threads that never come, or sums what they never wrote.
// libtorch sets a thread's number anew the first time that it is asked for it on that thread, or that at::parallel_for is
// called; which of both knows of the other depends on how libtorch was built. So both are done before it is changed here.
class OneThread {
 public:
  OneThread() : before_(settled_number()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  static int settled_number() {
    at::parallel_for(0, 1, 1, [](std::int64_t, std::int64_t) {});
    return at::get_num_threads();
  }

  int before_;
};

// A core does some 50 MACs a nanosecond: below a million it is done before a second thread is awake.
constexpr std::int64_t kParallelMacs = 1'000'000;

// A weight gradient sums over the batch, and oneDNN cuts that sum by the number of threads. Here the batch is
// cut into a fixed number of parts, each part is summed by one thread and the parts are added in order: the
// result is the same whatever the number of threads. Eight parts keep up to eight threads busy and leave 16
// images a part at the papers' batch of 128.
constexpr std::int64_t kParts = 8;

at::Tensor weight_gradient_in_parts(const Quantized& dy, const Quantized& x, const ConvShape& shape) {
  const std::int64_t items = shape.input[0];
  const std::int64_t parts = std::min(kParts, items);
  std::vector<at::Tensor> partial(static_cast<std::size_t>(parts));
  const std::int64_t parts_per_thread = shape.macs() * items < kParallelMacs ? parts : 1;
  at::parallel_for(0, parts, parts_per_thread, [&](std::int64_t begin, std::int64_t end) {
    const OneThread one_thread;
    for (std::int64_t part = begin; part < end; ++part) {
      const std::int64_t first = part * items / parts;
      const std::int64_t last = (part + 1) * items / parts;
      partial[static_cast<std::size_t>(part)] =
          weight_gradient(decode(slice(dy, first, last)), decode(slice(x, first, last)), shape);
    }
  });
  for (std::size_t part = 1; part < partial.size(); ++part) partial[0].add_(partial[part]);
  return partial[0];
}

// A BLAS cuts a product's rows and columns by the number of threads, and its kernels for what is left at an edge sum in
// another order (OpenBLAS's for AVX2 do). Here they are cut in places that only their size decides, and one thread computes
// each part.
void multiply_in_parts(const at::Tensor& a, const at::Tensor& b, at::Tensor y) {
  const std::int64_t dimension = y.size(0) >= y.size(1) ? 0 : 1, extent = y.size(dimension);
  // Rows or columns: of a BLAS kernel, and of a part.
  constexpr std::int64_t kKernel = 16, kLeast = 4 * kKernel;
  const std::int64_t parts = std::clamp<std::int64_t>(extent / kLeast, 1, kParts);
  const std::int64_t parts_per_thread = y.numel() * a.size(1) < kParallelMacs ? parts : 1;
  const auto cut = [&](std::int64_t part) {
    return part == parts ? extent : extent * part / parts / kKernel * kKernel;
  };
  at::parallel_for(0, parts, parts_per_thread, [&](std::int64_t begin, std::int64_t end) {
    const OneThread one_thread;
    const at::NoGradGuard no_grad;  // a thread's own matter
    for (std::int64_t part = begin; part < end; ++part) {
      const std::int64_t first = cut(part), size = cut(part + 1) - first;
      at::Tensor out = y.narrow(dimension, first, size);
      at::mm_out(out, dimension == 0 ? a.narrow(0, first, size) : a,
                 dimension == 0 ? b : b.narrow(1, first, size));
    }
  });
}

at::Tensor matrix_product(const at::Tensor& a, const at::Tensor& b) {
  if (!a.device().is_cpu()) return at::matmul(a, b);
  if (a.dim() == 2) {
    at::Tensor y = at::empty({a.size(0), b.size(1)}, a.options());
    multiply_in_parts(a, b, y);
    return y;
  }
  const at::Tensor left = a.flatten(0, -3), right = b.flatten(0, -3);
  at::Tensor y = at::empty({left.size(0), left.size(1), right.size(2)}, a.options());
  const std::int64_t macs = std::max<std::int64_t>(1, y.size(1) * y.size(2) * left.size(2));
  at::parallel_for(0, y.size(0), std::max<std::int64_t>(1, kParallelMacs / macs),
                   [&](std::int64_t begin, std::int64_t end) {
                     const OneThread one_thread;
                     const at::NoGradGuard no_grad;
                     at::Tensor out = y.narrow(0, begin, end - begin);
                     at::bmm_out(out, left.narrow(0, begin, end - begin),
                                 right.narrow(0, begin, end - begin));
                   });
  std::vector<std::int64_t> sizes(a.sizes().begin(), a.sizes().end() - 1);
  sizes.push_back(y.size(2));
  return y.view(sizes);
}

// oneDNN cuts the sum over the channels of a 1×1 convolution by the number of threads; in NHWC it is a product of matrices.
bool is_matrix_product(const ConvShape& shape, const at::Tensor& x) {
  return x.device().is_cpu() && shape.groups == 1 && shape.weight[2] == 1 && shape.weight[3] == 1 &&
         shape.stride[0] == 1 && shape.stride[1] == 1 && shape.padding[0] == 0 && shape.padding[1] == 0;
}

// A few images do not keep several threads busy, so oneDNN cuts their channels, and then the sum over those as well. Here
// each is computed by one thread.
bool is_small(const ConvShape& shape, const at::Tensor& x) {
  return x.device().is_cpu() && shape.input[0] < kParts;
}

template <typename Compute>
at::Tensor image_by_image(const ConvShape& shape, const at::Tensor& x, const Compute& compute) {
  ConvShape one = shape;
  one.input[0] = 1;
  std::vector<at::Tensor> results(static_cast<std::size_t>(x.size(0)));
  at::parallel_for(0, x.size(0), 1, [&](std::int64_t begin, std::int64_t end) {
    const OneThread one_thread;
    for (std::int64_t i = begin; i < end; ++i)
      results[static_cast<std::size_t>(i)] = compute(x.narrow(0, i, 1), one);
  });
  return results.size() == 1 ? results[0] : at::cat(results);
}

at::Tensor as_rows(const at::Tensor& image) { return contiguous(image).permute({0, 2, 3, 1}).flatten(0, 2); }

at::Tensor as_image(const at::Tensor& rows, const at::Tensor& like) {
  return rows.view({like.size(0), like.size(2), like.size(3), rows.size(1)}).permute({0, 3, 1, 2});
}

}  // namespace

// A 1×1 convolution with a stride is one of the pixels that it reads, as in a trunk: the same sums, in the same order.
at::Tensor SimulatedEngine::conv2d(const Quantized& x, const Quantized& w, const ConvShape& shape) const {
  if (skips_pixels(shape)) return conv2d(pixels_apart(x, shape.stride), w, of_pixels_read(shape));
  const at::Tensor input = decode(x), weight = decode(w);
  if (is_matrix_product(shape, input)) {
    return as_image(matrix_product(as_rows(input), weight.reshape({shape.weight[0], shape.weight[1]}).t()),
                    input);
  }
  if (!is_small(shape, input)) return convolve(input, weight, shape);
  return image_by_image(shape, input, [&](const at::Tensor& image, const ConvShape& one) {
    return convolve(image, weight, one);
  });
}

at::Tensor SimulatedEngine::conv2d_input_gradient(const Quantized& dy, const Quantized& w,
                                                  const ConvShape& shape) const {
  if (skips_pixels(shape)) {
    const at::Tensor of_read = conv2d_input_gradient(dy, w, of_pixels_read(shape));
    const at::Tensor dx =
        at::zeros(shape.input, of_read.options().memory_format(at::MemoryFormat::ChannelsLast));
    pixels_apart(dx, shape.stride).copy_(of_read);
    return dx;
  }
  const at::Tensor error = decode(dy);
  if (is_matrix_product(shape, error)) {
    return as_image(matrix_product(as_rows(error), decode(w).reshape({shape.weight[0], shape.weight[1]})),
                    error);
  }
  const at::Tensor weight = decode(w);
  if (!is_small(shape, error)) return input_gradient(error, weight, shape);
  return image_by_image(shape, error, [&](const at::Tensor& image, const ConvShape& one) {
    return input_gradient(image, weight, one);
  });
}

at::Tensor SimulatedEngine::conv2d_weight_gradient(const Quantized& dy, const Quantized& x,
                                                   const ConvShape& shape) const {
  if (skips_pixels(shape))
    return conv2d_weight_gradient(dy, pixels_apart(x, shape.stride), of_pixels_read(shape));
  if (x.code.device().is_cpu()) return weight_gradient_in_parts(dy, x, shape);
  return weight_gradient(decode(dy), decode(x), shape);
}

at::Tensor SimulatedEngine::product(const Quantized& a, const Quantized& b, const ProductShape& shape) const {
  at::Tensor left = decode(a);
  at::Tensor right = decode(b);
  if (shape.transpose_a) left = left.transpose(-2, -1);
  if (shape.transpose_b) right = right.transpose(-2, -1);
  return matrix_product(left, right);
}

// The operand is decoded here, once for all products.
std::unique_ptr<const PreparedOperand> SimulatedEngine::prepare(const Quantized& b, bool transposed) const {
  return std::make_unique<PreparedOperand>(Quantized{decode(b), {}, {}, 0}, transposed);
}

at::Tensor SimulatedEngine::aggregate(const SparseRows& matrix, const Quantized& features) const {
  return aggregate_rows(matrix, {decode(features), {}, {}, 0});
}

}  // namespace lowtide
