#pragma once

namespace lowtide {

// After a launch: throws std::runtime_error where it was refused, on a GPU that the kernel was not compiled for, say. Unasked,
// the next one to ask would be told, and name another kernel. No torch.
void check_launch(const char* kernel);

}  // namespace lowtide
