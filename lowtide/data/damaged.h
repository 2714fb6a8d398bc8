#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lowtide/data/image_dataset.h"

namespace lowtide {

// An item that cannot be read, and the line that says why.
struct DamagedItem {
  std::int64_t item = 0;
  std::string problem;
};

// Reads all items, several at a time; those that end with a UserError, in their order. What else is thrown is thrown
// here.
std::vector<DamagedItem> find_damaged(std::int64_t items, const std::function<void(std::int64_t)>& read);

// The data set without images that cannot be decoded, for which every one is read once; `damaged` says what is wrong
// with those. UserError where none is whole.
std::shared_ptr<const ImageDataset> without_damaged(std::shared_ptr<const ImageDataset> dataset,
                                                    std::vector<std::string>& damaged);

}  // namespace lowtide
