#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lowtide/io/file.h"

namespace lowtide {

// The entries of a zip archive (PKWARE's APPNOTE 6.3), stored or deflated, as .npz files have them. What is
// encrypted, spread over several files or larger than 4 GiB (zip64) is refused.
class ZipArchive {
 public:
  // `bytes` must outlive this. `name` begins the UserError about what is not a whole archive.
  ZipArchive(ByteSpan bytes, std::string name);

  const std::string& name() const { return name_; }
  bool has(const std::string& entry) const { return entries_.contains(entry); }
  std::vector<std::string> entries() const;  // sorted

  // The content of an entry, its checksum verified. UserError for one that is not there or damaged.
  std::vector<std::byte> read(const std::string& entry) const;

 private:
  struct Entry {
    std::uint32_t method = 0;
    std::uint32_t checksum = 0;
    std::uint32_t compressed_size = 0;
    std::uint32_t size = 0;
    std::uint32_t header = 0;  // where its own header begins
  };

  std::uint32_t number(std::size_t offset, std::size_t size) const;  // low byte first
  std::size_t find_directory_end() const;
  void read_directory(std::size_t begin, std::size_t end, std::size_t count);
  ByteSpan data_of(const Entry& entry, const std::string& entry_name) const;
  [[noreturn]] void damaged(const std::string& what) const;

  ByteSpan bytes_;
  std::string name_;
  std::map<std::string, Entry> entries_;
};

}  // namespace lowtide
