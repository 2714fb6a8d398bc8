#include "tests/train/closed_loop.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>

#include "lowtide/io/jsonl.h"
#include "lowtide/train/checkpoint.h"
#include "lowtide/train/run_folder.h"
#include "tests/train/resumed.h"
#include "tests/train/small_run.h"

namespace lowtide {

namespace fs = std::filesystem;

std::string tensor_bytes(const fs::path& file) {
  const std::string bytes = file_bytes(file);
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof(header));
  return bytes.substr(sizeof(header) + header);
}

std::string table_of_run(const fs::path& run) {
  std::string table = "table";
  std::int64_t from = 0;
  for (const Json& line : read_jsonl(RunPaths{run}.metrics()).lines) {
    if (line.contains("split")) continue;
    const std::int64_t step = line.at("step");
    table += fmt::format(" {}x{}", line.at("bits").get<int>(), step - from);
    from = step;
  }
  return table + " grad=8";
}

void expect_loop_trains_as_its_table(Recipe recipe, const std::string& line, const fs::path& folder) {
  recipe.running.log_every = 1000;  // a loop's lines come by themselves
  recipe.precision.eval_bits = 8;   // a table's highest may be lower
  for_each_engine(recipe, folder, [&](Recipe one, const fs::path& at) {
    one.precision.schedule = line;
    train(one, at / "loop");
    one.precision.schedule = table_of_run(at / "loop");
    train(one, at / "table");
    const fs::path loop_file = RunPaths{at / "loop"}.checkpoint(one.training.steps),
                   table_file = RunPaths{at / "table"}.checkpoint(one.training.steps);
    const Json loop = read_checkpoint_state(loop_file), table = read_checkpoint_state(table_file);
    EXPECT_GT(loop.at("schedule").at("heard").size(), 0u);
    EXPECT_EQ(loop.at("ledger").at("items"), table.at("ledger").at("items"));
    for (const char* part : {"step", "task", "rate", "optimizer", "average"})
      EXPECT_EQ(loop.at(part), table.at(part)) << part;
    EXPECT_EQ(tensor_bytes(loop_file), tensor_bytes(table_file)) << one.precision.schedule;
  });
}

}  // namespace lowtide
