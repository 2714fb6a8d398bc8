#pragma once

#include <utility>
#include <vector>

#include "lowtide/data/image_dataset.h"

namespace lowtide {

// Images of one size with their labels, as bytes: a float would take four times the memory.
struct LabelledImages {
  int height = 0;
  int width = 0;
  int channels = 0;
  std::vector<std::uint8_t> pixels;  // N × H × W × C
  std::vector<std::uint8_t> labels;  // N
};

class MemoryDataset : public ImageDataset {
 public:
  MemoryDataset(std::string name, LabelledImages images, int classes);

  std::int64_t size() const override { return static_cast<std::int64_t>(images_.labels.size()); }
  int classes() const override { return classes_; }
  int channels() const override { return images_.channels; }
  int height() const override { return images_.height; }
  int width() const override { return images_.width; }
  int label(std::int64_t i) const override { return images_.labels[static_cast<std::size_t>(i)]; }
  Image image(std::int64_t i) const override;
  std::span<const std::uint8_t> pixels() const override { return images_.pixels; }
  std::string item_name(std::int64_t i) const override;
  std::string describe() const override;

 private:
  std::string name_;
  LabelledImages images_;
  int classes_;
};

}  // namespace lowtide
