#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "lowtide/base/json.h"
#include "lowtide/base/torch.h"
#include "lowtide/data/loader.h"

namespace lowtide {

// The batches of a training on its device. On a GPU they come in tensors that stay where they are, for a captured CUDA
// graph reads the same addresses every time; all work is ordered by the current stream.
class StaticBatches {
 public:
  virtual ~StaticBatches() = default;

  // Draws the next batch and sends to the device what it is made of. The host's part: never within a capture. Throws
  // what making the batch met.
  virtual void prepare() = 0;
  // The batch that was prepared last. The device's part: may be captured, and then be replayed after every prepare().
  virtual Batch batch() = 0;

  virtual std::int64_t position() const = 0;  // items prepared
  virtual Json state() const = 0;
  virtual void restore(const Json& state) = 0;
};

// Copies from the host's memory to a tensor that stays. To a GPU by way of pinned memory, new for each copy: torch gives
// none of it out again before the copy is done, and nobody waits for that.
void copy_to_static(const torch::Tensor& from, const torch::Tensor& to);

// Batches made by a loader's threads in the host's memory: any images, any augmentation.
class LoadedBatches final : public StaticBatches {
 public:
  LoadedBatches(std::unique_ptr<TrainLoader> loader, torch::Device device)
      : loader_(std::move(loader)), device_(device) {}

  void prepare() override;
  Batch batch() override { return batch_; }
  std::int64_t position() const override { return loader_->position(); }
  Json state() const override { return loader_->state(); }
  void restore(const Json& state) override { loader_->restore(state); }

 private:
  std::unique_ptr<TrainLoader> loader_;
  torch::Device device_;
  Batch batch_;
};

}  // namespace lowtide
