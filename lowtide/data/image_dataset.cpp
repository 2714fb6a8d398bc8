#include "lowtide/data/image_dataset.h"

#include <fmt/format.h>

#include "lowtide/base/error.h"
#include "lowtide/data/cifar.h"
#include "lowtide/data/idx.h"
#include "lowtide/data/image_folder.h"

namespace lowtide {

std::unique_ptr<ImageDataset> open_image_dataset(const std::string& format,
                                                 const std::filesystem::path& folder, Split split) {
  const bool known = format == "idx" || format == "cifar10" || format == "cifar100" || format == "folder" ||
                     format == "tiny-imagenet";
  if (!known) {
    throw UserError(
        fmt::format("image format '{}' is not known; expected idx, cifar10, cifar100, folder or "
                    "tiny-imagenet",
                    format));
  }
  if (!std::filesystem::is_directory(folder)) {
    throw UserError(fmt::format("{}: no such folder; expected one with {} data", folder.string(), format));
  }
  if (format == "idx") return open_idx(folder, split);
  if (format == "cifar10") return open_cifar(CifarVariant::kCifar10, folder, split);
  if (format == "cifar100") return open_cifar(CifarVariant::kCifar100, folder, split);
  if (format == "folder" && !is_tiny_imagenet(folder)) return open_image_folder(folder, split);
  return open_tiny_imagenet(folder, split);
}

}  // namespace lowtide
