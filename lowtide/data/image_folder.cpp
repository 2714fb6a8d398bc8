#include "lowtide/data/image_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "lowtide/base/error.h"
#include "lowtide/data/decode.h"
#include "lowtide/io/file.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxFileBytes = std::size_t{1} << 28;  // ImageNet's largest has 15 MB
constexpr std::size_t kMaxAnnotationBytes = std::size_t{1} << 28;

struct Item {
  std::string file;  // relative to the dataset's folder
  int label;
};

class FolderDataset : public ImageDataset {
 public:
  FolderDataset(fs::path folder, std::vector<std::string> classes, std::vector<Item> items,
                std::size_t other_files)
      : folder_(std::move(folder)),
        classes_(std::move(classes)),
        items_(std::move(items)),
        other_files_(other_files) {}

  std::int64_t size() const override { return static_cast<std::int64_t>(items_.size()); }
  int classes() const override { return static_cast<int>(classes_.size()); }
  std::string class_name(int label) const override { return classes_[static_cast<std::size_t>(label)]; }
  int channels() const override { return 3; }
  int height() const override { return 0; }
  int width() const override { return 0; }
  int label(std::int64_t i) const override { return items_[static_cast<std::size_t>(i)].label; }
  std::string item_name(std::int64_t i) const override {
    return (folder_ / items_[static_cast<std::size_t>(i)].file).string();
  }
  Image image(std::int64_t i) const override {
    const std::string name = item_name(i);
    return decode_image(read_file(name, kMaxFileBytes), name);
  }
  std::string describe() const override {
    std::string text = fmt::format("{}: {} images, {} classes", folder_.string(), size(), classes());
    if (other_files_ > 0) text += fmt::format(", {} files of other kinds not read", other_files_);
    return text;
  }

 private:
  fs::path folder_;
  std::vector<std::string> classes_;
  std::vector<Item> items_;
  std::size_t other_files_;  // beside the images
};

// Names in a folder, sorted: the order in which a disk lists them is not the same everywhere.
template <typename Wanted>
std::vector<std::string> sorted_names(const fs::path& folder, Wanted wanted) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (name.front() != '.' && wanted(*entry)) names.push_back(std::move(name));
  }
  if (error) {
    throw UserError(
        fmt::format("{}: cannot be listed ({}); expected a folder", folder.string(), error.message()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> class_names(const fs::path& folder) {
  auto names = sorted_names(folder, [&](const fs::directory_entry& entry) {
    if (entry.is_regular_file() && has_image_extension(entry.path())) {
      throw UserError(fmt::format("{}: an image beside the folders of the classes; move it into one of them",
                                  entry.path().string()));
    }
    return entry.is_directory();
  });
  if (names.empty()) {
    throw UserError(fmt::format("{}: no folders in it; expected one for each class", folder.string()));
  }
  return names;
}

struct ImageNames {
  std::vector<std::string> names;
  std::size_t other_files = 0;
};

ImageNames image_names(const fs::path& folder) {
  ImageNames result;
  result.names = sorted_names(folder, [&](const fs::directory_entry& entry) {
    const bool image = has_image_extension(entry.path());
    if (!image && entry.is_regular_file()) ++result.other_files;
    return image;
  });
  return result;
}

// All images of `folder`/CLASS/`within`, the label being the place of the class among `classes`.
std::unique_ptr<ImageDataset> open_classes(const fs::path& folder, const std::vector<std::string>& classes,
                                           const std::string& within) {
  std::vector<Item> items;
  std::size_t other_files = 0;
  for (std::size_t label = 0; label < classes.size(); ++label) {
    const fs::path part = fs::path(classes[label]) / within;
    const ImageNames found = image_names(folder / part);
    if (found.names.empty()) {
      throw UserError(fmt::format("{}: no images of this class; expected .jpg, .jpeg, .png or .webp files",
                                  (folder / part).string()));
    }
    for (const std::string& name : found.names)
      items.push_back({(part / name).string(), static_cast<int>(label)});
    other_files += found.other_files;
  }
  return std::make_unique<FolderDataset>(folder, classes, std::move(items), other_files);
}

std::optional<int> position(const std::vector<std::string>& sorted, const std::string& name) {
  const auto found = std::lower_bound(sorted.begin(), sorted.end(), name);
  if (found == sorted.end() || *found != name) return std::nullopt;
  return static_cast<int>(found - sorted.begin());
}

void check_same_classes(const fs::path& folder, const std::vector<std::string>& train,
                        const std::vector<std::string>& val) {
  for (const std::string& name : val) {
    if (!position(train, name)) {
      throw UserError(fmt::format("{}: a class that {} does not have; expected the same classes in both",
                                  (folder / "val" / name).string(), (folder / "train").string()));
    }
  }
  for (const std::string& name : train) {
    if (!position(val, name)) {
      throw UserError(
          fmt::format("{}: no such folder, but {} has this class; expected the same classes in both",
                      (folder / "val" / name).string(), (folder / "train").string()));
    }
  }
}

AnnotatedFile parse_annotation(std::string_view line, std::size_t number, const std::string& name) {
  const std::size_t first = line.find('\t');
  const std::size_t second = line.find('\t', first == line.npos ? first : first + 1);
  AnnotatedFile result{std::string(line.substr(0, first)), ""};
  if (first != line.npos) result.class_name = line.substr(first + 1, second - first - 1);
  // A slash would lead out of the folder of images.
  if (result.file.empty() || result.class_name.empty() || result.file.find('/') != std::string::npos) {
    throw UserError(fmt::format("{}:{}: expected a file name, a tab and a class", name, number));
  }
  return result;
}

}  // namespace

std::unique_ptr<ImageDataset> open_image_folder(const fs::path& folder, Split split) {
  const auto classes = class_names(folder / "train");
  const fs::path part = folder / (split == Split::kTest ? "val" : "train");
  if (split == Split::kTest) check_same_classes(folder, classes, class_names(part));
  return open_classes(part, classes, "");
}

bool is_tiny_imagenet(const fs::path& folder) { return fs::exists(folder / "val" / "val_annotations.txt"); }

std::unique_ptr<ImageDataset> open_tiny_imagenet(const fs::path& folder, Split split) {
  const auto classes = class_names(folder / "train");
  if (split != Split::kTest) return open_classes(folder / "train", classes, "images");
  const fs::path annotations = folder / "val" / "val_annotations.txt";
  const fs::path part = folder / "val" / "images";
  const ImageNames found = image_names(part);
  const std::vector<std::string>& present = found.names;
  std::vector<Item> items;
  for (const auto& [file, class_name] :
       parse_val_annotations(read_text_file(annotations, kMaxAnnotationBytes), annotations.string())) {
    const auto label = position(classes, class_name);
    if (!label) {
      throw UserError(fmt::format("{}: {} is of class {}; expected a class of {}", annotations.string(), file,
                                  class_name, (folder / "train").string()));
    }
    if (!position(present, file)) {
      throw UserError(fmt::format("{}: no such image; expected since {} names it", (part / file).string(),
                                  annotations.filename().string()));
    }
    items.push_back({file, *label});
  }
  if (items.size() != present.size()) {
    throw UserError(fmt::format("{}: classes of {} images; expected {}, as many as there are in {}",
                                annotations.string(), items.size(), present.size(), part.string()));
  }
  return std::make_unique<FolderDataset>(part, classes, std::move(items), found.other_files);
}

std::vector<AnnotatedFile> parse_val_annotations(std::string_view text, const std::string& name) {
  std::vector<AnnotatedFile> result;
  std::set<std::string> seen;
  for (std::size_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    result.push_back(parse_annotation(line, number, name));
    if (!seen.insert(result.back().file).second) {
      throw UserError(fmt::format("{}:{}: {} for the second time; expected one class an image", name, number,
                                  result.back().file));
    }
  }
  if (result.empty()) throw UserError(fmt::format("{}: empty; expected the class of every image", name));
  return result;
}

}  // namespace lowtide
