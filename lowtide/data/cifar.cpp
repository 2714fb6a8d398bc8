#include "lowtide/data/cifar.h"

#include <fmt/format.h>

#include "lowtide/base/error.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

constexpr int kSide = 32;
constexpr std::size_t kPlane = std::size_t{kSide} * kSide;
constexpr std::size_t kMaxBytes = std::size_t{1} << 30;  // the largest, CIFAR-100's train.bin, has 154 MB

struct Layout {
  const char* name;
  const char* subfolder;
  int coarse_classes;  // 0: no such label
  int classes;
  std::vector<std::string> train;
  std::string test;
};

const Layout& layout_of(CifarVariant variant) {
  static const Layout kCifar10 = {
      "CIFAR-10",
      "cifar-10-batches-bin",
      0,
      10,
      {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"},
      "test_batch.bin"};
  static const Layout kCifar100 = {"CIFAR-100", "cifar-100-binary", 20, 100, {"train.bin"}, "test.bin"};
  return variant == CifarVariant::kCifar10 ? kCifar10 : kCifar100;
}

void check_label(int label, int classes, const char* kind, std::size_t record, const std::string& name) {
  if (label < classes) return;
  throw UserError(fmt::format("{}: {} {} of record {} is out of range; expected 0..{}", name, kind, label,
                              record, classes - 1));
}

}  // namespace

void parse_cifar(ByteSpan bytes, CifarVariant variant, const std::string& name, LabelledImages& out) {
  const Layout& layout = layout_of(variant);
  const std::size_t label_bytes = layout.coarse_classes > 0 ? 2 : 1;
  const std::size_t record_bytes = label_bytes + 3 * kPlane;
  if (bytes.empty() || bytes.size() % record_bytes != 0) {
    throw UserError(fmt::format("{}: {} bytes; expected {} records of {} bytes each, whole ones", name,
                                bytes.size(), layout.name, record_bytes));
  }
  const std::size_t records = bytes.size() / record_bytes;
  out.height = out.width = kSide;
  out.channels = 3;
  std::size_t pixel = out.pixels.size();
  out.pixels.resize(pixel + records * 3 * kPlane);
  const auto* record = reinterpret_cast<const std::uint8_t*>(bytes.data());
  for (std::size_t i = 0; i < records; ++i, record += record_bytes) {
    if (layout.coarse_classes > 0) check_label(record[0], layout.coarse_classes, "coarse label", i, name);
    const std::uint8_t label = record[label_bytes - 1];
    check_label(label, layout.classes, "label", i, name);
    out.labels.push_back(label);
    const std::uint8_t* planes = record + label_bytes;
    for (std::size_t p = 0; p < kPlane; ++p) {
      for (std::size_t c = 0; c < 3; ++c) out.pixels[pixel++] = planes[c * kPlane + p];
    }
  }
}

std::unique_ptr<ImageDataset> open_cifar(CifarVariant variant, const fs::path& folder, Split split) {
  const Layout& layout = layout_of(variant);
  const fs::path within = folder / layout.subfolder;
  const fs::path& place = fs::is_directory(within) ? within : folder;
  const auto files = split == Split::kTest ? std::vector<std::string>{layout.test} : layout.train;
  LabelledImages images;
  std::size_t records = 0;  // of the first file: the others have as many, or one of them lost some
  for (const std::string& file : files) {
    const fs::path path = place / file;
    if (!fs::exists(path)) {
      throw UserError(fmt::format("{}: no such file; expected {} in its binary version (.bin files)",
                                  path.string(), layout.name));
    }
    const std::size_t before = images.labels.size();
    parse_cifar(read_file(path, kMaxBytes), variant, path.string(), images);
    const std::size_t added = images.labels.size() - before;
    if (before > 0 && added != records) {
      throw UserError(
          fmt::format("{}: {} records; expected {} as in {}", path.string(), added, records, files.front()));
    }
    records = added;
  }
  return std::make_unique<MemoryDataset>(fmt::format("{} {}", layout.name, place.string()), std::move(images),
                                         layout.classes);
}

}  // namespace lowtide
