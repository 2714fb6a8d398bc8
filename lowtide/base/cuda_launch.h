#pragma once

#include <cstddef>

namespace lowtide {

// After a launch: throws std::runtime_error where it was refused, on a GPU that the kernel was not compiled for, say.
// Unasked, the next one to ask would be told, and name another kernel. No torch.
void check_launch(const char* kernel);

// Shared memory that a launch may ask for on the GPU in use, beside the few words that a kernel declares itself: 227 KiB
// on an H200, 163 KiB on an A100, 99 KiB on GPUs for desktops.
std::size_t most_shared_bytes();

}  // namespace lowtide
