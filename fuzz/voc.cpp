#include "lowtide/data/detection/voc.h"

#include <cstddef>
#include <cstdint>

#include "fuzz/deep.h"
#include "lowtide/base/error.h"

// The input as an annotation and as a list of images. Boxes that are read lie within their image.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lowtide;
  const std::string text = deepened(data, size);
  try {
    const VocAnnotation annotation = parse_voc_annotation(text, "input");
    for (const VocObject& object : annotation.objects) {
      if (object.class_name.empty() || object.class_name.find('\n') != std::string::npos) __builtin_trap();
      if (area(object.box) <= 0 || object.box != clipped(object.box, annotation.width, annotation.height)) {
        __builtin_trap();
      }
    }
  } catch (const UserError&) {
  }
  try {
    for (const std::string& name : parse_voc_image_set(lines_of_text(text, "input"))) {
      if (name.empty() || name.find('/') != name.npos) __builtin_trap();
    }
  } catch (const UserError&) {
  }
  return 0;
}
