#include "lowtide/engine/cuda/weight_gradients.h"

#include "lowtide/base/cuda_stream.h"

namespace lowtide::cuda {

void WeightGradients::add(const WeightGradientArguments& arguments, std::vector<at::Tensor> reads) {
  if (!has_image_weight_gradient(arguments.g)) {
    aside_.run([&](void* stream) { conv_weight_gradient(arguments, stream); }, std::move(reads));
    return;
  }
  // Codes are held until the end. A layer's floats, four times as large, are freed on the way.
  of_images_.push_back(arguments);
  reads_.insert(reads_.end(), reads.begin(), reads.end());
}

void WeightGradients::finish() {
  aside_.join();
  if (!of_images_.empty())
    image_weight_gradients(of_images_.data(), static_cast<int>(of_images_.size()), current_cuda_stream());
  of_images_.clear();
  reads_.clear();
}

}  // namespace lowtide::cuda
