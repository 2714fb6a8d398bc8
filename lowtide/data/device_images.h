#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "lowtide/base/torch.h"
#include "lowtide/data/augment.h"
#include "lowtide/data/device_images_kernels.h"
#include "lowtide/data/image_dataset.h"
#include "lowtide/data/static_batches.h"
#include "lowtide/data/stream.h"

namespace lowtide {

// The images of a data set that are in memory, on a device: bytes, a quarter of what floats would take.
class DevicePixels {
 public:
  DevicePixels(std::shared_ptr<const ImageDataset> dataset, torch::Device device);

  const std::shared_ptr<const ImageDataset>& dataset() const { return dataset_; }
  torch::Device device() const { return bytes_.device(); }
  const std::uint8_t* data() const { return bytes_.data_ptr<std::uint8_t>(); }

 private:
  std::shared_ptr<const ImageDataset> dataset_;  // on a CPU the bytes are its own
  torch::Tensor bytes_;
};

// A batch in tensors that stay where they are, made on the device by one kernel out of a table of what is cut where.
class BatchGather {
 public:
  BatchGather(std::shared_ptr<const DevicePixels> pixels, const AugmentSpec& augment,
              std::int64_t batch_size);

  void load(
      const torch::Tensor& table);  // to the device: int32, a CropItem each row, at most the batch's size
  Batch batch() const;              // of the table as it is there

 private:
  void gather() const;
  void gather_on_cpu() const;
  GatherArguments arguments() const;

  std::shared_ptr<const DevicePixels> pixels_;
  Augmenter augmenter_;
  std::int64_t count_ = 0;  // of the table that was loaded last
  torch::Tensor table_;
  Batch batch_;
};

// What TrainLoader hands out, to the bit, made on the device. The host draws which images, where they are cut and
// whether they are flipped, ahead of their use; positions and states are a TrainLoader's, and either restores the
// other's.
class DeviceImages final : public StaticBatches {
 public:
  // Whether images and their augmentation are such that batches can be made on this device, a GPU: in memory, of one
  // size, nothing resampled, 2 GiB at most.
  static bool fits(const ImageDataset& dataset, const AugmentSpec& augment, torch::Device device);

  DeviceImages(std::shared_ptr<const DevicePixels> pixels, std::vector<std::int64_t> indices,
               std::uint64_t seed, const AugmentSpec& augment, LoaderOptions options);

  void prepare() override { gather_.load(tables_.next()); }
  Batch batch() override { return gather_.batch(); }
  std::int64_t position() const override { return tables_.position(); }
  Json state() const override { return tables_.state(); }
  void restore(const Json& state) override { tables_.restore(state); }

 private:
  BatchGather gather_;
  TrainStream<torch::Tensor> tables_;
};

// What EvalLoader hands out, to the bit, made on the device. A batch is there until the next is asked for.
class DeviceEvalImages {
 public:
  DeviceEvalImages(std::shared_ptr<const DevicePixels> pixels, std::vector<std::int64_t> indices,
                   const AugmentSpec& augment, LoaderOptions options);

  std::optional<Batch> next();  // nothing at the end
  void rewind() { tables_.rewind(); }

 private:
  BatchGather gather_;
  EvalStream<torch::Tensor> tables_;
};

}  // namespace lowtide
