#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

#include "lowtide/base/error.h"
#include "lowtide/base/json.h"
#include "lowtide/base/shards.h"
#include "lowtide/data/prefetch.h"
#include "lowtide/data/sampler.h"

namespace lowtide {

struct LoaderOptions {
  std::int64_t batch_size = 128;
  int threads = 0;   // 0: the machine's cores, at most 4
  int prefetch = 0;  // batches finished or under way; 0: two a thread
  Shards shards{};   // of training: each of these is handed out as a batch
};

LoaderOptions with_defaults(LoaderOptions options);

// Which items make a batch. `position` is that of the first in the stream: it seeds the augmentation.
struct BatchPlan {
  std::vector<std::int64_t> items;  // of the data set
  std::int64_t position = 0;
};

template <typename Batch>
using MakeBatch = std::function<Batch(const BatchPlan&, const std::stop_token&)>;

// Batches of an endless shuffled stream over `indices` of a data set, made ahead by worker threads. What comes out
// depends on the seed and the position alone: not on the threads, and not on a resume. With shards, those of this process
// come one by one, and the others' items are passed over.
template <typename Batch>
class TrainStream {
 public:
  TrainStream(std::vector<std::int64_t> indices, std::uint64_t seed, MakeBatch<Batch> make,
              LoaderOptions options)
      : indices_(std::move(indices)),
        options_(with_defaults(options)),
        make_(std::move(make)),
        sampler_(seed, static_cast<std::int64_t>(indices_.size())) {}

  // The workers hold on to `this`.
  TrainStream(const TrainStream&) = delete;
  TrainStream& operator=(const TrainStream&) = delete;

  // Throws what a worker met, at the batch that holds it.
  Batch next() {
    if (!workers_) {
      workers_ = std::make_unique<OrderedPrefetcher<BatchPlan, Batch>>([this] { return plan(); }, make_,
                                                                       options_.threads, options_.prefetch);
    }
    std::optional<Batch> batch = workers_->next();
    LOWTIDE_CHECK(batch.has_value(), "an endless stream");
    ++handed_;
    return *std::move(batch);
  }

  // Items of the batches that were handed out, not those made ahead.
  std::int64_t position() const { return begun_ + handed_ / options_.shards.count * options_.batch_size; }
  Json state() const { return sampler_.state_at(position()); }

  void restore(const Json& state) {
    workers_.reset();  // what was made ahead belongs to the old position
    begun_ = position();
    handed_ = planned_ = 0;
    sampler_.seek(begun_);
    sampler_.restore(state);
    begun_ = sampler_.position();
  }

 private:
  std::optional<BatchPlan> plan() {
    const Shards& shards = options_.shards;
    const std::int64_t shard = shards.first + planned_++ % shards.count;
    if (shard == shards.first) {
      batch_.position = sampler_.position();
      batch_.items = sampler_.next_batch(options_.batch_size);
      for (std::int64_t& item : batch_.items) item = indices_[static_cast<std::size_t>(item)];
    }
    const std::int64_t begin = shards.begin_of(shard, options_.batch_size),
                       end = shards.begin_of(shard + 1, options_.batch_size);
    return BatchPlan{{batch_.items.begin() + begin, batch_.items.begin() + end}, batch_.position + begin};
  }

  std::vector<std::int64_t> indices_;
  LoaderOptions options_;
  MakeBatch<Batch> make_;
  EpochSampler sampler_;      // the workers draw from it: only its seed and size may be read while they live
  BatchPlan batch_;           // likewise theirs: the batch whose shards are being planned
  std::int64_t planned_ = 0;  // likewise: shards
  std::int64_t begun_ = 0,
               handed_ = 0;  // position at which it was begun or resumed, and shards handed out since
  std::unique_ptr<OrderedPrefetcher<BatchPlan, Batch>> workers_;  // from the first next() on
};

// One pass over `indices`, in their order, the last batch as small as what is left.
template <typename Batch>
class EvalStream {
 public:
  EvalStream(std::vector<std::int64_t> indices, MakeBatch<Batch> make, LoaderOptions options)
      : indices_(std::move(indices)), options_(with_defaults(options)), make_(std::move(make)) {}

  EvalStream(const EvalStream&) = delete;
  EvalStream& operator=(const EvalStream&) = delete;

  // Nothing at the end.
  std::optional<Batch> next() {
    if (!workers_) {
      workers_ = std::make_unique<OrderedPrefetcher<BatchPlan, Batch>>([this] { return plan(); }, make_,
                                                                       options_.threads, options_.prefetch);
    }
    return workers_->next();
  }

  // For another pass.
  void rewind() {
    workers_.reset();
    planned_ = 0;
  }

 private:
  std::optional<BatchPlan> plan() {
    if (planned_ == indices_.size()) return std::nullopt;
    const std::size_t end =
        std::min(indices_.size(), planned_ + static_cast<std::size_t>(options_.batch_size));
    BatchPlan plan;
    plan.position = static_cast<std::int64_t>(planned_);
    plan.items.assign(indices_.begin() + plan.position, indices_.begin() + static_cast<std::ptrdiff_t>(end));
    planned_ = end;
    return plan;
  }

  std::vector<std::int64_t> indices_;
  LoaderOptions options_;
  MakeBatch<Batch> make_;
  std::size_t planned_ = 0;
  std::unique_ptr<OrderedPrefetcher<BatchPlan, Batch>> workers_;
};

}  // namespace lowtide
