#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "lowtide/data/image_dataset.h"
#include "lowtide/io/file.h"

namespace lowtide {

// The IDX format of MNIST: 00 00, type (08: unsigned bytes), number of dimensions, each dimension as four
// bytes with the high one first, then the values. `name` begins the UserError about a file that is not so.
struct IdxImages {
  std::int64_t count = 0;
  int height = 0;
  int width = 0;
  std::vector<std::uint8_t> pixels;
};
IdxImages parse_idx_images(ByteSpan bytes, const std::string& name);

// Labels of `classes` classes, checked to be among them.
std::vector<std::uint8_t> parse_idx_labels(ByteSpan bytes, int classes, const std::string& name);

std::unique_ptr<ImageDataset> open_idx(const std::filesystem::path& folder, Split split);

}  // namespace lowtide
