#include "lowtide/train/weight_plane.h"

#include <cmath>

#include "lowtide/base/random.h"
#include "lowtide/models/initialise.h"

namespace lowtide {
namespace {

double norm(const float* values, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += static_cast<double>(values[i]) * values[i];
  return std::sqrt(sum);
}

// On the host and in order: the same numbers on every device, with any number of threads.
torch::Tensor direction(const torch::Tensor& centre, RandomStream stream) {
  const torch::Tensor weight = centre.to(torch::kCPU).contiguous();
  torch::Tensor result = torch::empty(weight.sizes());
  fill_normal(result, 1.0, stream);
  const std::int64_t filter = weight.numel() / std::max<std::int64_t>(1, weight.size(0));
  for (std::int64_t i = 0; i < weight.size(0); ++i) {
    float* values = result.data_ptr<float>() + i * filter;
    const double own = norm(values, filter);
    const double scale = own > 0 ? norm(weight.data_ptr<float>() + i * filter, filter) / own : 0;
    for (std::int64_t j = 0; j < filter; ++j) values[j] = static_cast<float>(scale * values[j]);
  }
  return result.to(centre.device());
}

}  // namespace

WeightPlane::WeightPlane(torch::nn::Module& model, std::uint64_t seed) {
  std::uint32_t place = 0;
  for (const torch::Tensor& parameter : model.parameters()) {
    if (parameter.dim() < 2) continue;
    const torch::Tensor centre = parameter.detach().clone();
    const auto along = [&](std::uint64_t axis) {
      return direction(centre, RandomStream(seed, RandomPurpose::kDirection, axis, place));
    };
    weights_.push_back({parameter, centre, along(0), along(1)});
    ++place;
  }
}

void WeightPlane::move_to(double x, double y) {
  const torch::NoGradGuard no_grad;
  for (const Weight& weight : weights_)
    weight.parameter.copy_(weight.centre + x * weight.along_x + y * weight.along_y);
}

}  // namespace lowtide
