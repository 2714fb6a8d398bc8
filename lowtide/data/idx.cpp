#include "lowtide/data/idx.h"

#include <fmt/format.h>

#include <array>

#include "lowtide/base/error.h"
#include "lowtide/data/memory_dataset.h"
#include "lowtide/io/gzip.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

constexpr int kClasses = 10;                             // of MNIST and of all that took over its file names
constexpr std::size_t kMaxBytes = std::size_t{1} << 32;  // MNIST has 47 MB
constexpr std::uint32_t kMaxSide = 65535;                // keeps count · height · width below 2^64

std::uint32_t big_endian(ByteSpan bytes, std::size_t offset) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value = value << 8 | std::to_integer<std::uint32_t>(bytes[offset + i]);
  return value;
}

// Checks the header and returns the dimensions; the values begin after 4 + 4 · kDimensions bytes.
template <std::size_t kDimensions>
std::array<std::uint32_t, kDimensions> parse_header(ByteSpan bytes, const std::string& name) {
  constexpr std::uint32_t kMagic = 0x0800 + kDimensions;
  constexpr std::size_t kHeader = 4 + 4 * kDimensions;
  if (bytes.size() < kHeader) {
    throw UserError(
        fmt::format("{}: {} bytes; expected an IDX file with a header of {}", name, bytes.size(), kHeader));
  }
  if (big_endian(bytes, 0) != kMagic) {
    throw UserError(
        fmt::format("{}: begins with {:08x}; expected {:08x}, the mark of an IDX file of bytes in {} "
                    "dimension{}",
                    name, big_endian(bytes, 0), kMagic, kDimensions, kDimensions == 1 ? "" : "s"));
  }
  std::array<std::uint32_t, kDimensions> dimensions{};
  for (std::size_t i = 0; i < kDimensions; ++i) dimensions[i] = big_endian(bytes, 4 + 4 * i);
  return dimensions;
}

template <std::size_t kDimensions>
std::uint64_t value_bytes(const std::array<std::uint32_t, kDimensions>& dimensions, const std::string& name) {
  std::uint64_t bytes = 1;
  for (std::size_t i = 0; i < kDimensions; ++i) {
    if (i > 0 && dimensions[i] > kMaxSide) {
      throw UserError(fmt::format("{}: images of {}x{}; expected at most {} a side", name, dimensions.back(),
                                  dimensions[1], kMaxSide));
    }
    bytes *= dimensions[i];
  }
  return bytes;
}

// The whole file, and of a larger one than its header promises no more than a byte beyond.
template <std::size_t kDimensions>
std::vector<std::byte> read_idx(const fs::path& path) {
  const std::string name = path.string();
  constexpr std::size_t kHeader = 4 + 4 * kDimensions;
  return read_maybe_gzip(path, kHeader, [&](ByteSpan header) {
    const std::uint64_t bytes = kHeader + value_bytes(parse_header<kDimensions>(header, name), name);
    if (bytes > kMaxBytes) {
      throw UserError(
          fmt::format("{}: its header promises {} bytes; expected at most {}", name, bytes, kMaxBytes));
    }
    return bytes;
  });
}

void check_size(ByteSpan values, std::uint64_t expected, const std::string& name) {
  if (values.size() == expected && expected > 0) return;
  throw UserError(fmt::format("{}: {} bytes of data, and its header promises {}; expected the same, and some",
                              name, values.size(), expected));
}

std::vector<std::uint8_t> copy_of(ByteSpan bytes) {
  const auto* first = reinterpret_cast<const std::uint8_t*>(bytes.data());
  return {first, first + bytes.size()};
}

fs::path plain_or_gzip(const fs::path& folder, const std::string& name) {
  for (const fs::path& path : {folder / name, folder / (name + ".gz")}) {
    if (fs::exists(path)) return path;
  }
  throw UserError(fmt::format("{}: no such file, nor with .gz; expected the IDX files of MNIST's names",
                              (folder / name).string()));
}

}  // namespace

IdxImages parse_idx_images(ByteSpan bytes, const std::string& name) {
  const auto dimensions = parse_header<3>(bytes, name);
  const ByteSpan values = bytes.subspan(16);
  check_size(values, value_bytes(dimensions, name), name);
  const auto [count, height, width] = dimensions;
  return {count, static_cast<int>(height), static_cast<int>(width), copy_of(values)};
}

std::vector<std::uint8_t> parse_idx_labels(ByteSpan bytes, int classes, const std::string& name) {
  const auto [count] = parse_header<1>(bytes, name);
  std::vector<std::uint8_t> labels = copy_of(bytes.subspan(8));
  check_size(bytes.subspan(8), count, name);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] >= classes) {
      throw UserError(fmt::format("{}: label {} of image {} is out of range; expected 0..{}", name, labels[i],
                                  i, classes - 1));
    }
  }
  return labels;
}

std::unique_ptr<ImageDataset> open_idx(const fs::path& folder, Split split) {
  const std::string prefix = split == Split::kTest ? "t10k" : "train";
  const fs::path image_path = plain_or_gzip(folder, prefix + "-images-idx3-ubyte");
  const fs::path label_path = plain_or_gzip(folder, prefix + "-labels-idx1-ubyte");
  IdxImages images = parse_idx_images(read_idx<3>(image_path), image_path.string());
  std::vector<std::uint8_t> labels = parse_idx_labels(read_idx<1>(label_path), kClasses, label_path.string());
  if (static_cast<std::size_t>(images.count) != labels.size()) {
    throw UserError(fmt::format("{}: {} labels; expected {}, one for each image of {}", label_path.string(),
                                labels.size(), images.count, image_path.filename().string()));
  }
  return std::make_unique<MemoryDataset>(
      image_path.string(),
      LabelledImages{images.height, images.width, 1, std::move(images.pixels), std::move(labels)}, kClasses);
}

}  // namespace lowtide
