#pragma once

#include <string_view>
#include <vector>

namespace lowtide {

// What a recipe's `data` may be.
std::vector<std::string_view> data_formats();

}  // namespace lowtide
