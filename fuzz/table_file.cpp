#include "lowtide/recipe/table_file.h"

#include <cstddef>
#include <cstdint>

#include "fuzz/deep.h"
#include "lowtide/base/error.h"
#include "lowtide/schedule/schedule.h"

// A file either is a UserError or a table that reads as a schedule's line of the same table.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lowtide;
  try {
    const std::string text = deepened(data, size);
    const BitTable table = parse_table(lines_of_text(text, "input"));
    const ScheduleSpec spec = parse_schedule("table " + to_string(table));
    LOWTIDE_CHECK(spec.table == table, to_string(table));
    const auto schedule = make_schedule(spec, table.steps());
    LOWTIDE_CHECK(schedule->at(0).forward == table.runs().front().bits, to_string(table));
    LOWTIDE_CHECK(schedule->at(table.steps() - 1).forward == table.runs().back().bits, to_string(table));
  } catch (const UserError&) {
  }
  return 0;
}
