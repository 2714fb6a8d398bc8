#include "tests/data/detection/small_voc.h"

#include <fmt/format.h>

#include "lowtide/data/detection/voc.h"
#include "tests/data/image_files.h"

namespace lowtide {
namespace {

std::string object_xml(std::int32_t label, const BoundingBox& box, bool difficult) {
  return fmt::format(
      "<object><name>{}</name><difficult>{}</difficult><bndbox><xmin>{}</xmin><ymin>{}</ymin><xmax>{}</xmax>"
      "<ymax>{}</ymax></bndbox></object>",
      kVocClasses[static_cast<std::size_t>(label)], difficult ? 1 : 0, box.left + 1, box.top + 1, box.right,
      box.bottom);
}

}  // namespace

SmallVocObject small_voc_object(int image) {
  const auto i = static_cast<float>(image);
  return {image % 2 == 0 ? 6 : 14, {4 + i, 6 + 2 * i, 40 + i, 38 + 2 * i}};
}

void write_small_voc(const std::filesystem::path& folder) {
  std::string names;
  for (int i = 0; i < kSmallVocImages; ++i) {
    const std::string name = fmt::format("image{}", i);
    const int width = i % 2 == 0 ? 80 : 60, height = 140 - width;
    const auto [label, box] = small_voc_object(i);
    Image image{height, width, 3, {}};
    std::string objects = i == 2 ? "" : object_xml(label, box, false);
    if (i == 0) objects += object_xml(3, {50, 50, 60, 58}, true);
    for (int y = 0; y < height; ++y) {
      for (int x = 0; x < width; ++x) {
        const bool inside = i != 2 && x >= static_cast<int>(box.left) && x < static_cast<int>(box.right) &&
                            y >= static_cast<int>(box.top) && y < static_cast<int>(box.bottom);
        for (int c = 0; c < 3; ++c)
          image.pixels.push_back(
              static_cast<std::uint8_t>(inside ? 150 + 40 * (c + label) % 100 : 20 + x / 4 + c));
      }
    }
    write_file(folder / "JPEGImages" / (name + ".jpg"), encode_jpeg(image));
    write_file(
        folder / "Annotations" / (name + ".xml"),
        fmt::format(
            "<annotation><size><width>{}</width><height>{}</height><depth>3</depth></size>{}</annotation>",
            width, height, objects));
    names += name + "\n";
  }
  for (const std::string set : {"train", "val"})
    write_file(folder / "ImageSets" / "Main" / (set + ".txt"), names);
}

}  // namespace lowtide
