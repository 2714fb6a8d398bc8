#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "lowtide/data/memory_dataset.h"
#include "lowtide/io/file.h"

namespace lowtide {

enum class CifarVariant { kCifar10, kCifar100 };

// Appends the records of one file: the label (CIFAR-100: coarse, then fine, which is taken), then 32×32
// values of red, of green, of blue. `name` begins the UserError about a file that is not so.
void parse_cifar(ByteSpan bytes, CifarVariant variant, const std::string& name, LabelledImages& out);

std::unique_ptr<ImageDataset> open_cifar(CifarVariant variant, const std::filesystem::path& folder,
                                         Split split);

}  // namespace lowtide
