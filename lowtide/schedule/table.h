#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lowtide/schedule/profile.h"

namespace lowtide {

// Steps in a row at the same forward bits.
struct TableRun {
  int bits = 0;
  std::int64_t steps = 0;
  std::vector<std::uint8_t> layers{};  // bits of each layer, where they are not the same; else empty

  bool has_bits_of(const TableRun& other) const { return bits == other.bits && layers == other.layers; }
  bool operator==(const TableRun&) const = default;
};

// 8x100: 8 bits for 100 steps. 5[4/6/5]x100: 4, 6 and 5 bits for a network's three layers, 5 told as those of all. UserError
// for what is not such a run.
TableRun read_table_run(std::string_view text);
std::string to_string(const TableRun& run);

// Bits as runs; no two neighbours have the same; all have bits of as many layers. As text `8x100 5x1500 8x400`.
class BitTable {
 public:
  // A run for each of 64,000 steps, which as a line is below the 1 MiB of a recipe file.
  static constexpr std::size_t kMostRuns = 65'536;

  // UserError where the table becomes too long.
  void append(TableRun run);

  const std::vector<TableRun>& runs() const { return runs_; }
  std::int64_t steps() const { return steps_; }
  BitRange bits() const;  // the lowest and the highest, of layers too; of a table with runs
  bool operator==(const BitTable&) const = default;

 private:
  std::vector<TableRun> runs_;
  std::int64_t steps_ = 0;
};

std::string to_string(const BitTable& table);

}  // namespace lowtide
