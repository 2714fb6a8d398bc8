#pragma once

// Every difference between the libtorch versions that Lowtide builds against: Debian's 1.13 and PyTorch 2.x.

#include <torch/version.h>

#if TORCH_VERSION_MAJOR >= 2
#define LOWTIDE_ALLOCATE_CONST  // c10::Allocator::allocate may change the allocator
#include <optional>
#else
#define LOWTIDE_ALLOCATE_CONST const
#include <c10/util/Optional.h>
#endif

// From PyTorch 2.8 on a captured CUDA graph can be kept and looked at.
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 8)
#define LOWTIDE_GRAPHS_CAN_BE_READ 1
#else
#define LOWTIDE_GRAPHS_CAN_BE_READ 0
#endif

namespace lowtide {

#if TORCH_VERSION_MAJOR >= 2
template <typename T>
using Optional = std::optional<T>;
inline constexpr auto kNothing = std::nullopt;
#else
template <typename T>
using Optional = c10::optional<T>;
inline constexpr auto kNothing = c10::nullopt;
#endif

}  // namespace lowtide
