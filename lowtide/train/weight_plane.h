#pragma once

#include <cstdint>
#include <vector>

#include "lowtide/base/torch.h"

namespace lowtide {

// Two random directions from a model's weights, normalised by filter (Li et al. 2018, section 4): normal
// numbers, each filter of a direction scaled to the norm of the model's own. A filter is a slice along the
// first dimension of a weight: of a convolution one output channel, of a matrix one row. Parameters of one
// dimension, biases and those of normalisations, are not moved. Models of one kind get the same numbers for
// one seed, whatever their weights: only the scale is their own.
class WeightPlane {
 public:
  struct Weight {
    torch::Tensor parameter;  // the model's
    torch::Tensor centre, along_x, along_y;
  };

  WeightPlane(torch::nn::Module& model, std::uint64_t seed);

  // Sets the weights to centre + x along_x + y along_y; at 0, 0 they are what they were, to the bit.
  void move_to(double x, double y);

  const std::vector<Weight>& weights() const { return weights_; }

 private:
  std::vector<Weight> weights_;
};

}  // namespace lowtide
