#pragma once

#include <string>

#include "lowtide/io/lines.h"
#include "lowtide/schedule/table.h"

namespace lowtide {

// A table of bits from a file, plain or gzip, in one of two forms:
//   8x100                  runs, BITSxSTEPS, one or more a line
//   step,bits              rows of a step (from 0, rising) and its bits, which hold until the next row;
//   0,8                    the last row is the last step
// The head may be left out. UserError, with file and line, for anything else.
BitTable parse_table(const LineSource& lines);

// The schedule's line with each @FILE of a table replaced by its runs. Only what a user gives is read so: from then on
// the line says all, and the file may change or go.
std::string with_tables_read(const std::string& schedule);

}  // namespace lowtide
