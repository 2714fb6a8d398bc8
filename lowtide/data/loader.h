#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lowtide/base/torch.h"
#include "lowtide/data/augment.h"
#include "lowtide/data/image_dataset.h"
#include "lowtide/data/stream.h"

namespace lowtide {

struct Batch {
  torch::Tensor images;  // float32, N × C × H × W in channels-last order
  torch::Tensor labels;  // int64, N
};

// Reads, augments and lays out a batch in the calling thread, without torch operations: those would start
// OpenMP teams that compete with the training.
class BatchMaker {
 public:
  BatchMaker(std::shared_ptr<const ImageDataset> dataset, AugmentSpec augment, std::uint64_t seed);
  Batch operator()(const BatchPlan& plan, const std::stop_token& stop) const;

 private:
  std::shared_ptr<const ImageDataset> dataset_;
  Augmenter augmenter_;
  std::uint64_t seed_;
};

// The images of a data set as streams of batches.
class TrainLoader : public TrainStream<Batch> {
 public:
  TrainLoader(std::shared_ptr<const ImageDataset> dataset, std::vector<std::int64_t> indices,
              std::uint64_t seed, AugmentSpec augment, LoaderOptions options);
};

class EvalLoader : public EvalStream<Batch> {
 public:
  EvalLoader(std::shared_ptr<const ImageDataset> dataset, std::vector<std::int64_t> indices,
             AugmentSpec augment, LoaderOptions options);
};

}  // namespace lowtide
