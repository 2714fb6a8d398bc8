#pragma once

#include <cstdint>
#include <string>

#include "lowtide/study/runner.h"

namespace lowtide {

// The length of the recipe's training in steps. One that is given in epochs needs the data: without it a
// UserError, or where an assumption will do, as for a cost, what was assumed.
std::int64_t steps_of(const Recipe& recipe, std::string* assumed = nullptr);

// What the runner says goes to the terminal, line by line.
void print_line(const std::string& line);

}  // namespace lowtide
