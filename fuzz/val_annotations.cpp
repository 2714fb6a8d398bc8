#include <cstddef>
#include <cstdint>

#include "lowtide/base/error.h"
#include "lowtide/data/image_folder.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    for (const auto& [file, class_name] : lowtide::parse_val_annotations(text, "input")) {
      if (file.empty() || class_name.empty() || file.find('/') != std::string::npos) __builtin_trap();
    }
  } catch (const lowtide::UserError&) {
  }
  return 0;
}
