#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lowtide/data/image_dataset.h"

namespace lowtide {

// train/CLASS/*.{jpg,jpeg,png,webp}, val/CLASS/…: classes are numbered by name, and both have the same.
std::unique_ptr<ImageDataset> open_image_folder(const std::filesystem::path& folder, Split split);

// Tiny-ImageNet's own layout: train/CLASS/images/*.JPEG, val/images/*.JPEG, val/val_annotations.txt.
bool is_tiny_imagenet(const std::filesystem::path& folder);
std::unique_ptr<ImageDataset> open_tiny_imagenet(const std::filesystem::path& folder, Split split);

// A line a picture: its file, its class, and a box that is not needed, with tabs between. Every file at most
// once.
struct AnnotatedFile {
  std::string file;
  std::string class_name;
};
std::vector<AnnotatedFile> parse_val_annotations(std::string_view text, const std::string& name);

}  // namespace lowtide
