#include "lowtide/data/memory_dataset.h"

#include <fmt/format.h>

#include "lowtide/base/error.h"

namespace lowtide {

MemoryDataset::MemoryDataset(std::string name, LabelledImages images, int classes)
    : name_(std::move(name)), images_(std::move(images)), classes_(classes) {
  const std::size_t image_bytes = static_cast<std::size_t>(images_.height) *
                                  static_cast<std::size_t>(images_.width) *
                                  static_cast<std::size_t>(images_.channels);
  LOWTIDE_CHECK(images_.pixels.size() == images_.labels.size() * image_bytes, "as many images as labels");
}

Image MemoryDataset::image(std::int64_t i) const {
  const std::int64_t image_bytes = std::int64_t{images_.height} * images_.width * images_.channels;
  const auto first = images_.pixels.begin() + i * image_bytes;
  return {images_.height, images_.width, images_.channels, {first, first + image_bytes}};
}

std::string MemoryDataset::item_name(std::int64_t i) const { return fmt::format("{}, image {}", name_, i); }

std::string MemoryDataset::describe() const {
  return fmt::format("{}: {} images of {}x{}, {} channel{}, {} classes", name_, size(), width(), height(),
                     channels(), channels() == 1 ? "" : "s", classes());
}

}  // namespace lowtide
