#include "lowtide/data/cifar.h"

#include <cstddef>
#include <cstdint>

#include "lowtide/base/error.h"

// Records have some 3,000 bytes, more than libFuzzer makes up by itself: every byte of the input stands for
// 512.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < size && i < 64; ++i) {
    bytes.insert(bytes.end(), i + 1 == size ? data[i] : 512, static_cast<std::byte>(data[i]));
  }
  for (const auto variant : {lowtide::CifarVariant::kCifar10, lowtide::CifarVariant::kCifar100}) {
    lowtide::LabelledImages images;
    try {
      lowtide::parse_cifar(bytes, variant, "input", images);
      if (images.pixels.size() != images.labels.size() * 3072) __builtin_trap();
    } catch (const lowtide::UserError&) {
    }
  }
  return 0;
}
