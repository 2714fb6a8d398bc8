#pragma once

#include <filesystem>

#include "lowtide/io/file.h"

namespace lowtide {

// A regular file seen as memory: pages are read when they are touched. The bytes start at a multiple of the
// page size and stay where they are when the object is moved. A file that another process cuts short while it
// is mapped ends this one with SIGBUS: files that are replaced by `write_atomically` never do that.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  ByteSpan bytes() const { return bytes_; }

 private:
  ByteSpan bytes_;
};

}  // namespace lowtide
