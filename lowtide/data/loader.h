#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "lowtide/base/json.h"
#include "lowtide/data/augment.h"
#include "lowtide/data/image_dataset.h"
#include "lowtide/data/prefetch.h"
#include "lowtide/data/sampler.h"

namespace lowtide {

struct Batch {
  torch::Tensor images;  // float32, N × C × H × W in channels-last order
  torch::Tensor labels;  // int64, N
};

struct LoaderOptions {
  std::int64_t batch_size = 128;
  int threads = 0;   // 0: the machine's cores, at most 4
  int prefetch = 0;  // batches finished or under way; 0: two a thread
};

// Which images make a batch. `position` is that of the first in the stream: it seeds the augmentation.
struct BatchPlan {
  std::vector<std::int64_t> items;  // of the dataset
  std::int64_t position = 0;
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

// Batches of an endless shuffled stream over `indices` of the dataset, made ahead by worker threads. What
// comes out depends on the seed and the position alone: not on the threads, and not on a resume.
class TrainLoader {
 public:
  TrainLoader(std::shared_ptr<const ImageDataset> dataset, std::vector<std::int64_t> indices,
              std::uint64_t seed, AugmentSpec augment, LoaderOptions options);

  // The workers hold on to `this`.
  TrainLoader(const TrainLoader&) = delete;
  TrainLoader& operator=(const TrainLoader&) = delete;

  Batch next();  // throws what a worker met, at the batch that holds it

  std::int64_t position() const { return handed_; }  // items handed out, not those made ahead
  Json state() const { return sampler_.state_at(handed_); }
  void restore(const Json& state);

 private:
  std::optional<BatchPlan> plan();

  std::vector<std::int64_t> indices_;
  LoaderOptions options_;
  BatchMaker maker_;
  EpochSampler sampler_;  // the workers draw from it: only its seed and size may be read while they live
  std::int64_t handed_ = 0;
  std::unique_ptr<OrderedPrefetcher<BatchPlan, Batch>> workers_;  // from the first next() on
};

// One pass over `indices`, in their order, the last batch as small as what is left.
class EvalLoader {
 public:
  EvalLoader(std::shared_ptr<const ImageDataset> dataset, std::vector<std::int64_t> indices,
             AugmentSpec augment, LoaderOptions options);

  EvalLoader(const EvalLoader&) = delete;
  EvalLoader& operator=(const EvalLoader&) = delete;

  std::optional<Batch> next();  // nothing at the end
  void rewind();                // for another pass

 private:
  std::optional<BatchPlan> plan();

  std::vector<std::int64_t> indices_;
  LoaderOptions options_;
  BatchMaker maker_;
  std::size_t planned_ = 0;
  std::unique_ptr<OrderedPrefetcher<BatchPlan, Batch>> workers_;
};

}  // namespace lowtide
