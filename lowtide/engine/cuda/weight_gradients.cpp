#include "lowtide/engine/cuda/weight_gradients.h"

#include <utility>

#include "lowtide/base/cuda_stream.h"
#include "lowtide/engine/cuda/depthwise.h"

namespace lowtide::cuda {

void WeightGradients::add(const WeightGradientArguments& arguments, std::vector<at::Tensor> reads) {
  if (!has_image_weight_gradient(arguments.g)) {
    const auto compute = arguments.g.depthwise ? depthwise_weight_gradient : conv_weight_gradient;
    aside_.run([&](void* stream) { compute(arguments, stream); }, std::move(reads));
    return;
  }
  // Codes are held until the end. A layer's floats, four times as large, are freed on the way, unless they are recomputed.
  of_images_.push_back(arguments);
  reads_.insert(reads_.end(), reads.begin(), reads.end());
}

void WeightGradients::finish() {
  const auto layers = std::exchange(of_images_, {});
  const auto reads = std::exchange(reads_, {});
  if (!layers.empty())
    image_weight_gradients(layers.data(), static_cast<int>(layers.size()), current_cuda_stream());
  aside_.join();
}

void WeightGradients::drop() {
  of_images_.clear();
  reads_.clear();
}

}  // namespace lowtide::cuda
