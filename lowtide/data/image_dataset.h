#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "lowtide/data/image.h"
#include "lowtide/data/split.h"

namespace lowtide {

// Labelled images in the order of their files. All functions may be called from several threads.
class ImageDataset {
 public:
  virtual ~ImageDataset() = default;

  virtual std::int64_t size() const = 0;
  virtual int classes() const = 0;
  virtual std::string class_name(int label) const { return std::to_string(label); }
  virtual int channels() const = 0;  // 1 or 3
  virtual int height() const = 0;    // 0 where images have various sizes
  virtual int width() const = 0;
  virtual int label(std::int64_t i) const = 0;
  virtual Image image(std::int64_t i) const = 0;  // UserError for a damaged file
  // All of them, N × H × W × C, where they are in memory and of one size; else nothing.
  virtual std::span<const std::uint8_t> pixels() const { return {}; }
  virtual std::string item_name(std::int64_t i) const = 0;  // for messages: the file, and where in it
  virtual std::string describe() const = 0;                 // one line
};

// Formats, as their users have them on disk:
//   idx            train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-…, each plain or .gz (MNIST, Fashion-MNIST)
//   cifar10        data_batch_1..5.bin, test_batch.bin, in the folder or in its cifar-10-batches-bin
//   cifar100       train.bin, test.bin, in the folder or in its cifar-100-binary; fine labels
//   folder         train/CLASS/*.jpeg, val/CLASS/*.jpeg (ImageNet); also recognises the next
//   tiny-imagenet  train/CLASS/images/*.JPEG, val/images/*.JPEG, val/val_annotations.txt
// Split::kTest reads the test files (val/ of the folder formats, whose test labels nobody has). Split::kTrain and
// kValid both read the training files: what is held out of them is drawn by hold_out(). UserError for all that is
// missing or damaged; of the folder formats the images themselves are read later.
std::unique_ptr<ImageDataset> open_image_dataset(const std::string& format,
                                                 const std::filesystem::path& folder, Split split);

}  // namespace lowtide
