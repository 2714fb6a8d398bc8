#include "lowtide/report/metrics.h"

#include <cstdint>
#include <cstdlib>

#include "fuzz/deep.h"
#include "lowtide/io/jsonl.h"
#include "lowtide/report/metrics_encode.h"

// All columns of a table are as long as the table, and can be packed; what the strict reader of JSON lines takes has
// as many lines here. All else must be a UserError.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lowtide;
  const std::string text = deepened(data, size);
  try {
    const Metrics metrics = parse_metrics(text, "input");
    std::size_t rows = 0;
    for (const MetricsTable& table : metrics.tables) {
      rows += table.rows;
      for (const Column& column : table.columns) {
        if (column.values.size() != table.rows) std::abort();
      }
    }
    if (encode_metrics(metrics).empty()) std::abort();
    if (parse_jsonl(text, "input").lines.size() != rows) std::abort();
  } catch (const UserError&) {
  }
  return 0;
}
