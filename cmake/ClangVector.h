// Included ahead of everything where clang reads libtorch's headers (cmake/Torch.cmake).
//
// Since libstdc++ 12 the members of std::vector are constexpr in C++20. clang instantiates constexpr functions where they
// are named, GCC where their value is needed; libtorch 1.13 names those of vector<IValue> before IValue is complete. So
// here std::vector is what it was in C++17. std::string must stay constexpr: it is a literal type in later headers.
#pragma once

#include <string>

#ifdef _GLIBCXX20_CONSTEXPR
#undef _GLIBCXX20_CONSTEXPR
#define _GLIBCXX20_CONSTEXPR
#define __fill_a1 __fill_bits  // declared constexpr by <string>; its arguments are no longer literal types
#include <vector>
#undef __fill_a1
#undef _GLIBCXX20_CONSTEXPR
#define _GLIBCXX20_CONSTEXPR constexpr
#endif
