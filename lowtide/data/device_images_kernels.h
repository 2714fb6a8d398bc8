#pragma once

#include <cstdint>

// Batches out of bytes that lie on a GPU, on plain memory: no torch, so that nvcc and the host compiler read this in a
// moment.

namespace lowtide {

// An item of a batch, as the host has drawn it.
struct CropItem {
  std::int32_t index = 0;  // of the data set
  std::int32_t top = 0, left = 0, flip = 0;
  std::int32_t label = 0;

  static constexpr int kColumns = 5;  // of a table of them as a tensor
};
static_assert(sizeof(CropItem) == CropItem::kColumns * sizeof(std::int32_t));

struct GatherArguments {
  const std::uint8_t* pixels = nullptr;  // of the data set, N × height × width × channels
  const CropItem* items = nullptr;
  float* images = nullptr;         // out, count × out_height × out_width × channels
  std::int64_t* labels = nullptr;  // out
  std::int64_t count = 0;
  int height = 0, width = 0, channels = 0;  // 1 or 3 channels
  int out_height = 0, out_width = 0;
  float scale[3] = {}, shift[3] = {};  // of each channel: value · scale + shift
};

// `stream` is a cudaStream_t. Only in builds with CUDA.
void gather_images(const GatherArguments& arguments, void* stream);

}  // namespace lowtide
