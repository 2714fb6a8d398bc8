#pragma once

#include <cstdint>
#include <string>

#include "lowtide/study/runner.h"

namespace lowtide {

// The length of the recipe's training in steps. One that is given in epochs needs the data: without it a
// UserError, or where an assumption will do, as for a cost, what was assumed.
std::int64_t steps_of(const Recipe& recipe, std::string* assumed = nullptr);

// Takes out of a budget study, and tells, what could not be in the recipe's network.
void fit_to_network(Study& study);

// UserError where a file was given that is of another kind of study than the command.
void expect_kind(const Study& study, const std::string& kind);

// LeaseTaken where runs are trained by other processes: what the study shows is not known yet.
void expect_none_elsewhere(const RunnerEnd& end, std::size_t members);

// What the runner says goes to the terminal, line by line.
void print_line(const std::string& line);

}  // namespace lowtide
