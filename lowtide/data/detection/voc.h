#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "lowtide/data/detection/boxes.h"
#include "lowtide/data/image.h"
#include "lowtide/io/lines.h"

namespace lowtide {

// The classes of Pascal VOC, in alphabetical order: their places are the labels.
constexpr std::array<std::string_view, 20> kVocClasses = {
    "aeroplane", "bicycle",     "bird",  "boat",        "bottle", "bus",      "car",
    "cat",       "chair",       "cow",   "diningtable", "dog",    "horse",    "motorbike",
    "person",    "pottedplant", "sheep", "sofa",        "train",  "tvmonitor"};

struct VocObject {
  std::int32_t label = 0;
  BoundingBox box;
  bool difficult = false;
  bool truncated = false;
};

struct VocAnnotation {
  int height = 0;
  int width = 0;
  std::vector<VocObject> objects;  // an image may have none
};

// One file of Annotations/. VOC counts pixels from 1 and names the first and last in the box; here a box has
// edges, so that xmin 1, xmax 3 becomes 0 .. 3. A box that reaches over the image is cut at its edge. Parts of
// objects (heads, hands, feet) are not objects. `name` begins the UserError about anything else.
VocAnnotation parse_voc_annotation(std::string_view xml, const std::string& name);

// One file of ImageSets/Main/: the name of an image a line.
std::vector<std::string> parse_voc_image_set(const LineSource& source);

// The images of one set with their annotations, which are all read at the start.
class VocDataset {
 public:
  // `folder` holds Annotations/, ImageSets/ and JPEGImages/, or a VOC2012/ that does. `image_set`: train, val,
  // trainval, test …, or the first so many images of one: train:16.
  VocDataset(const std::filesystem::path& folder, const std::string& image_set);

  std::int64_t size() const { return static_cast<std::int64_t>(names_.size()); }
  const std::string& name(std::int64_t i) const { return names_[static_cast<std::size_t>(i)]; }
  const VocAnnotation& annotation(std::int64_t i) const { return annotations_[static_cast<std::size_t>(i)]; }

  // UserError for a file that is damaged, or of another size than the annotation says. Thread-safe.
  Image image(std::int64_t i) const;

  std::string describe() const;  // one line

 private:
  std::filesystem::path folder_;
  std::string image_set_;
  std::vector<std::string> names_;
  std::vector<VocAnnotation> annotations_;
};

}  // namespace lowtide
