#include "lowtide/data/detection/voc.h"

#include <fmt/format.h>

#include <charconv>
#include <set>

#include "lowtide/base/error.h"
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

}  // namespace

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

VocDataset::VocDataset(const fs::path& folder, const std::string& image_set)
    : folder_(voc_folder(folder)), image_set_(image_set) {
  const SetChoice choice = parse_choice(image_set);
  const fs::path list = folder_ / "ImageSets" / "Main" / (choice.name + ".txt");
  names_ = parse_voc_image_set(lines_of_file(list));
  if (choice.count > names_.size()) {
    throw UserError(fmt::format("{}: {} images; expected the {} of {}", list.string(), names_.size(),
                                choice.count, image_set));
  }
  if (choice.count > 0) names_.resize(choice.count);
  for (const std::string& name : names_) {
    const fs::path path = folder_ / "Annotations" / (name + ".xml");
    annotations_.push_back(parse_voc_annotation(read_text_file(path, kMaxAnnotationBytes), path.string()));
    const fs::path picture = folder_ / "JPEGImages" / (name + ".jpg");
    if (!fs::exists(picture)) {
      throw UserError(
          fmt::format("{}: no such image; expected since {}.txt names it", picture.string(), choice.name));
    }
  }
}

Image VocDataset::image(std::int64_t i) const {
  const std::string path = (folder_ / "JPEGImages" / (name(i) + ".jpg")).string();
  Image image = decode_image(read_file(path, kMaxImageBytes), path);
  const VocAnnotation& expected = annotation(i);
  if (image.height != expected.height || image.width != expected.width) {
    throw UserError(fmt::format("{}: {}x{} pixels; expected {}x{} as its annotation says", path, image.width,
                                image.height, expected.width, expected.height));
  }
  return image;
}

std::string VocDataset::describe() const {
  std::size_t objects = 0;
  for (const VocAnnotation& annotation : annotations_) objects += annotation.objects.size();
  return fmt::format("{}, {}: {} images, {} objects of {} classes", folder_.string(), image_set_, size(),
                     objects, kVocClasses.size());
}

}  // namespace lowtide
