#include "lowtide/data/detection/voc.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "lowtide/base/error.h"
#include "lowtide/data/damaged.h"
#include "lowtide/data/decode.h"
#include "lowtide/io/file.h"
#include "lowtide/io/json_check.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxAnnotationBytes = std::size_t{1} << 24;  // VOC's largest has 30 kB
constexpr std::size_t kMaxImageBytes = std::size_t{1} << 28;

fs::path voc_folder(const fs::path& folder) {
  for (const fs::path& place : {folder, folder / "VOC2012"}) {
    if (fs::is_directory(place / "Annotations")) return place;
  }
  throw UserError(
      fmt::format("{}: no Annotations in it, nor in a VOC2012; expected a folder of Pascal VOC, with "
                  "Annotations, ImageSets and JPEGImages",
                  folder.string()));
}

struct SetChoice {
  std::string name;
  std::size_t count = 0;  // 0: all
};

SetChoice parse_choice(const std::string& image_set) {
  const auto colon = image_set.find(':');
  if (colon == image_set.npos) return {image_set};
  SetChoice choice{image_set.substr(0, colon)};
  const char* last = image_set.data() + image_set.size();
  const auto [end, error] = std::from_chars(image_set.data() + colon + 1, last, choice.count);
  if (error != std::errc() || end != last || choice.count == 0) {
    throw UserError(fmt::format(
        "image set {}; expected a name, or a name and a number of images, as in train:16", shown(image_set)));
  }
  return choice;
}

// A picture's name is that of its annotation; empty where there is none.
fs::path find_picture(const fs::path& folder, const std::string& name) {
  for (const char* extension : {".jpg", ".jpeg", ".png", ".webp", ".JPG", ".JPEG", ".PNG", ".WEBP"}) {
    fs::path picture = folder / (name + extension);
    if (fs::exists(picture)) return picture;
  }
  return {};
}

bool has_size(const Image& image, const VocAnnotation& annotation) {
  return image.height == annotation.height && image.width == annotation.width;
}

std::string listed(const std::vector<std::string>& classes) {
  constexpr std::size_t kMost = 20;
  if (classes.size() <= kMost) return fmt::format("{}", fmt::join(classes, ", "));
  return fmt::format("{}, … ({} in all)", fmt::join(classes.begin(), classes.begin() + kMost, ", "),
                     classes.size());
}

}  // namespace

std::vector<std::string> voc_classes() { return {kVocClasses.begin(), kVocClasses.end()}; }

std::vector<std::string> parse_voc_image_set(const LineSource& source) {
  std::vector<std::string> names;
  std::set<std::string, std::less<>> seen;
  source.for_each([&](std::string_view line, std::size_t number) {
    // A slash would lead out of the folder of images; a blank is in the lists of single classes.
    if (line.empty() || line.find_first_of("/\\ \t") != line.npos) {
      throw UserError(fmt::format("{}:{}: {}; expected the name of an image, without .jpg, and no more",
                                  source.name, number, shown(line)));
    }
    if (!seen.emplace(line).second) {
      throw UserError(
          fmt::format("{}:{}: {} for the second time; expected each once", source.name, number, shown(line)));
    }
    names.emplace_back(line);
  });
  if (names.empty()) throw UserError(fmt::format("{}: empty; expected names of images", source.name));
  return names;
}

VocDataset::VocDataset(const fs::path& folder, const std::string& image_set, const VocOptions& options)
    : folder_(voc_folder(folder)), image_set_(image_set), classes_(options.classes) {
  const SetChoice choice = parse_choice(image_set);
  const fs::path list = folder_ / "ImageSets" / "Main" / (choice.name + ".txt");
  std::vector<std::string> names = parse_voc_image_set(lines_of_file(list));
  if (choice.count > names.size()) {
    throw UserError(fmt::format("{}: {} images; expected the {} of {}", list.string(), names.size(),
                                choice.count, image_set));
  }
  if (choice.count > 0) names.resize(choice.count);
  for (const std::string& name : names) {
    try {
      items_.push_back(read_item(name, choice.name));
    } catch (const UserError& error) {
      if (!options.skip_damaged) throw;
      damaged_.emplace_back(error.what());
    }
  }
  if (options.skip_damaged) drop_damaged_images();
  number_classes();
}

fs::path VocDataset::annotation_path(const std::string& name) const {
  return folder_ / "Annotations" / (name + ".xml");
}

VocDataset::Item VocDataset::read_item(const std::string& name, const std::string& set) const {
  const fs::path path = annotation_path(name), pictures = folder_ / "JPEGImages";
  Item item{name, find_picture(pictures, name),
            parse_voc_annotation(read_text_file(path, kMaxAnnotationBytes), path.string())};
  if (item.picture.empty()) {
    throw UserError(fmt::format("{}: no such image; expected since {}.txt names it",
                                (pictures / (name + ".jpg")).string(), set));
  }
  return item;
}

void VocDataset::drop_damaged_images() {
  const std::vector<DamagedItem> found = find_damaged(size(), [&](std::int64_t i) { image(i); });
  for (auto damaged = found.rbegin(); damaged != found.rend(); ++damaged)
    items_.erase(items_.begin() + damaged->item);
  for (const DamagedItem& damaged : found) damaged_.push_back(damaged.problem);
  if (items_.empty()) {
    throw UserError(fmt::format("{}, {}: all images are damaged, the first: {}", folder_.string(), image_set_,
                                damaged_.at(0)));
  }
}

void VocDataset::number_classes() {
  if (classes_.empty()) {
    std::set<std::string> found;
    for (const Item& item : items_) {
      for (const VocObject& object : item.annotation.objects) found.insert(object.class_name);
    }
    const bool of_voc = std::includes(kVocClasses.begin(), kVocClasses.end(), found.begin(), found.end());
    classes_ = of_voc ? voc_classes() : std::vector<std::string>(found.begin(), found.end());
  }
  std::map<std::string, std::int32_t> numbers;
  for (const std::string& name : classes_) numbers.emplace(name, static_cast<std::int32_t>(numbers.size()));
  for (Item& item : items_) {
    for (VocObject& object : item.annotation.objects) {
      const auto known = numbers.find(object.class_name);
      if (known == numbers.end()) {
        throw UserError(fmt::format(
            "{}:{}: class {}; expected one of the training set's, or of those that --classes names: {}",
            annotation_path(item.name).string(), object.line, shown(object.class_name), listed(classes_)));
      }
      object.label = known->second;
    }
  }
}

Image VocDataset::image(std::int64_t i) const {
  const std::string path = item(i).picture.string();
  const VocAnnotation& expected = annotation(i);
  const std::vector<std::byte> bytes = read_file(path, kMaxImageBytes);
  Image image = decode_image(bytes, path);
  if (has_size(image, expected)) return image;
  // Some annotate without looking at EXIF.
  Image stored = decode_stored_image(bytes, path);
  if (has_size(stored, expected)) return stored;
  throw UserError(fmt::format("{}: {}x{} pixels; expected {}x{} as its annotation says", path, image.width,
                              image.height, expected.width, expected.height));
}

std::string VocDataset::describe() const {
  std::size_t objects = 0;
  for (const Item& item : items_) objects += item.annotation.objects.size();
  std::string text = fmt::format("{}, {}: {} images, {} objects of {} classes", folder_.string(), image_set_,
                                 size(), objects, classes_.size());
  if (!damaged_.empty()) text += fmt::format(", {} damaged images left out", damaged_.size());
  return text;
}

}  // namespace lowtide
