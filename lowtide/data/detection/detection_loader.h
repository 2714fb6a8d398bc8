#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lowtide/base/torch.h"
#include "lowtide/data/detection/image_fit.h"
#include "lowtide/data/detection/voc.h"
#include "lowtide/data/stream.h"

namespace lowtide {

// What is done with an image before a detector sees it.
struct DetectionView {
  int shorter = 608, longer = 1024;   // see fit_sides
  std::vector<double> mean{}, std{};  // per channel, of values in 0..1; empty: 0 and 1
  bool flip = false;                  // left and right exchanged, half of the time
};

struct DetectionBatch {
  torch::Tensor images;   // float32, N × 3 × H × W in channels-last order, 0 beside the smaller images
  torch::Tensor objects;  // float32, N × M × 5: box in pixels of the batch, class; -1 where there are fewer
  std::vector<std::int64_t> items;  // of the data set
  std::vector<ImageFit> fits;       // how each was resized
};

// An image in its new size, normalised, in the upper left corner of height × width × 3 floats; the rest stays as it is.
void place_image(const Image& image, const ImageFit& fit, const DetectionView& view, bool flip,
                 std::int64_t width, float* out);

// The sides of a batch: multiples of 32, the coarsest that a detector halves without a remainder.
std::int64_t padded_side(std::int64_t side);

// Reads and lays out a batch in the calling thread, without torch operations. Difficult objects are left out: they are
// nobody's to find.
class DetectionBatchMaker {
 public:
  DetectionBatchMaker(std::shared_ptr<const VocDataset> dataset, DetectionView view, std::uint64_t seed);
  DetectionBatch operator()(const BatchPlan& plan, const std::stop_token& stop) const;

 private:
  std::shared_ptr<const VocDataset> dataset_;
  DetectionView view_;
  std::uint64_t seed_;
};

}  // namespace lowtide
