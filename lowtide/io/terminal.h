#pragma once

#include <string>
#include <string_view>

namespace lowtide {

// How many columns the terminal behind a file has now: its window may have changed since the last time. 80 where it does not
// say; 0 where there is none.
int terminal_columns(int file_number);

// As much of a line in UTF-8 as fits in so many columns, whole characters: wide ones take two, combining ones none.
std::string cut_to_columns(std::string_view text, int columns);

}  // namespace lowtide
