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

// The classes of Pascal VOC, in alphabetical order.
constexpr std::array<std::string_view, 20> kVocClasses = {
    "aeroplane", "bicycle",     "bird",  "boat",        "bottle", "bus",      "car",
    "cat",       "chair",       "cow",   "diningtable", "dog",    "horse",    "motorbike",
    "person",    "pottedplant", "sheep", "sofa",        "train",  "tvmonitor"};

struct VocObject {
  std::string class_name;
  std::int32_t label = -1;  // the place of its class among those of the data set
  BoundingBox box;
  bool difficult = false;
  bool truncated = false;
  std::int64_t line = 0;  // of the annotation, where it ends
};

struct VocAnnotation {
  int height = 0;
  int width = 0;
  std::vector<VocObject> objects;  // an image may have none
};

// One file of Annotations/. VOC counts pixels from 1 and names the first and last in the box; here a box has
// edges, so that xmin 1, xmax 3 becomes 0 .. 3. A box that reaches over the image is cut at its edge. Parts of
// objects (heads, hands, feet) are not objects. Classes have names, and no labels yet. `name` begins the UserError
// about anything else.
VocAnnotation parse_voc_annotation(std::string_view xml, const std::string& name);

// One file of ImageSets/Main/: the name of an image a line.
std::vector<std::string> parse_voc_image_set(const LineSource& source);

struct VocOptions {
  // The classes that objects have, whose places are the labels; another one is a UserError. Empty: those that occur,
  // by name, or VOC's 20 where no other occurs.
  std::vector<std::string> classes{};
  bool skip_damaged = false;  // leave out what cannot be read, for which every image is read once
};

// The images of one set with their annotations, which are all read at the start.
class VocDataset {
 public:
  // `folder` holds Annotations/, ImageSets/ and JPEGImages/, or a VOC2012/ that does. `image_set`: train, val,
  // trainval, test …, or the first so many images of one: train:16.
  VocDataset(const std::filesystem::path& folder, const std::string& image_set,
             const VocOptions& options = {});

  std::int64_t size() const { return static_cast<std::int64_t>(items_.size()); }
  const std::string& name(std::int64_t i) const { return item(i).name; }
  const VocAnnotation& annotation(std::int64_t i) const { return item(i).annotation; }
  const std::vector<std::string>& classes() const { return classes_; }
  const std::vector<std::string>& damaged() const { return damaged_; }  // what is wrong with those left out

  // In the orientation that its annotation gives the size of: as it is to be seen, else as it lies in the file.
  // UserError for a file that is damaged, or of another size. Thread-safe.
  Image image(std::int64_t i) const;

  std::string describe() const;  // one line

 private:
  struct Item {
    std::string name;
    std::filesystem::path picture;
    VocAnnotation annotation;
  };
  const Item& item(std::int64_t i) const { return items_[static_cast<std::size_t>(i)]; }
  std::filesystem::path annotation_path(const std::string& name) const;
  Item read_item(const std::string& name, const std::string& set) const;
  void drop_damaged_images();
  void number_classes();

  std::filesystem::path folder_;
  std::string image_set_;
  std::vector<Item> items_;
  std::vector<std::string> classes_, damaged_;
};

// VOC's classes as the list that a data set has.
std::vector<std::string> voc_classes();

}  // namespace lowtide
