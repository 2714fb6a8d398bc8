#pragma once

#include <cstdint>
#include <string_view>

#include "lowtide/schedule/profile.h"

namespace lowtide {

// The values in a schedule's line. UserError, which quotes the text, for what is none.
std::int64_t read_integer(std::string_view text);
double read_real(std::string_view text);
int read_bits(std::string_view text);
BitRange read_range(std::string_view text);  // 3:8, or one number for both ends

}  // namespace lowtide
