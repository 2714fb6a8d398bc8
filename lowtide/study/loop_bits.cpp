#include "lowtide/study/loop_bits.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "lowtide/base/error.h"
#include "lowtide/base/random.h"
#include "lowtide/train/metrics_line.h"

namespace lowtide {

BitTable logged_bits(const RunPaths& run, std::int64_t steps) {
  BitTable table;
  for (const LoggedLine& line : read_logged_lines(run.metrics())) {
    const std::optional<double> bits = line.figure("bits");
    if (!line.split.empty() || !line.step || !bits) continue;
    if (*line.step > table.steps())
      table.append(read_table_run(fmt::format("{}x{}", static_cast<int>(*bits), *line.step - table.steps())));
  }
  if (table.steps() != steps)
    throw UserError(fmt::format("{}: its lines tell the bits of {} steps, not of {}", run.metrics().string(),
                                table.steps(), steps));
  return table;
}

BitTable shuffled(const BitTable& bits, std::uint64_t seed) {
  std::vector<int> steps;
  for (const TableRun& run : bits.runs())
    steps.insert(steps.end(), static_cast<std::size_t>(run.steps), run.bits);
  constexpr std::uint64_t kNoEpoch =
      ~std::uint64_t{0};  // drawn as an epoch's order is, but for none that is trained
  RandomStream random(seed, RandomPurpose::kShuffle, kNoEpoch);
  for (std::size_t left = steps.size(); left > 1; --left)
    std::swap(steps[left - 1], steps[random.below(static_cast<std::uint32_t>(left))]);
  BitTable table;
  for (const int of_step : steps) table.append({of_step, 1});
  return table;
}

}  // namespace lowtide
