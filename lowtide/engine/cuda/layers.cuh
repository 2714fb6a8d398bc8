#pragma once

// One launch for many layers: they are its arguments, and each has blocks of its own.

#include <cuda_runtime.h>

#include <cstddef>

namespace lowtide::cuda {

// A kernel takes 4 KiB of arguments, and 32 KiB since CUDA 12.1: then a launch serves all layers of most networks.
inline constexpr std::size_t kArgumentBytes = CUDART_VERSION >= 12010 ? 32764 : 4096;

// Which blocks are whose.
template <int kMost>
struct LayerBlocks {
  int count = 0, first_block[kMost + 1]{};

  __host__ void add(int blocks) {
    first_block[count + 1] = first_block[count] + blocks;
    ++count;
  }
  __host__ bool is_full() const { return count == kMost; }
  __host__ unsigned blocks() const { return static_cast<unsigned>(first_block[count]); }

  // The layer of this block.
  __device__ int layer_of_block() const {
    int i = 0, end = count;  // it is in [i, end); layers without blocks are passed by
    while (end - i > 1) {
      const int middle = (i + end) / 2;
      (static_cast<int>(blockIdx.x) >= first_block[middle] ? i : end) = middle;
    }
    return i;
  }
  // This block's number among those of its layer.
  __device__ int block_of_layer(int layer) const { return static_cast<int>(blockIdx.x) - first_block[layer]; }
};

// How many layers fit into a launch, each of so many bytes.
constexpr int layers_per_launch(std::size_t bytes) {
  return static_cast<int>((kArgumentBytes - sizeof(LayerBlocks<1>)) / (bytes + sizeof(int)));
}

}  // namespace lowtide::cuda
