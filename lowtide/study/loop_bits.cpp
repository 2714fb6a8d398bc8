#include "lowtide/study/loop_bits.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "lowtide/base/error.h"
#include "lowtide/base/random.h"
#include "lowtide/cost/ledger.h"
#include "lowtide/schedule/read_value.h"
#include "lowtide/train/checkpoint_state.h"
#include "lowtide/train/metrics_line.h"

namespace lowtide {

namespace {

// What lines tell of the steps from the one before up to their own.
struct Told {
  std::int64_t end = 0;
  Json values;
};

// The layers in the order in which a table has them.
std::vector<std::string> layers_of(const RunPaths& run) {
  const std::vector<std::int64_t> steps = checkpoint_steps(run);
  if (steps.empty())
    throw UserError(fmt::format("{}: no checkpoint is left, whose ledger knows the order of the layers",
                                run.checkpoints().string()));
  const Ledger ledger = Ledger::from_state(read_checkpoint_state(run.checkpoint(steps.back())).at("ledger"));
  std::vector<std::string> names;
  for (const Ledger::Layer& layer : ledger.layers()) names.push_back(layer.name);
  return names;
}

std::string bits_key(const std::string& layer) { return fmt::format("{}.{}", layer, kLayerBitsKey); }

bool tells_layer_bits(const LoggedLine& line) {
  for (const auto& [key, value] : line.values.items()) {
    if (key.ends_with(bits_key(""))) return true;
  }
  return false;
}

// A layer that lines do not tell of has a rule, and of all layers' bits only its count in costs.
std::vector<std::uint8_t> bits_of_layers(const Json& told, const std::vector<std::string>& layers, int bits) {
  std::vector<std::uint8_t> result;
  for (const std::string& layer : layers)
    result.push_back(static_cast<std::uint8_t>(read_bits(std::to_string(told.value(bits_key(layer), bits)))));
  return result;
}

TableRun whole_run(const Json& line, std::int64_t count) {
  return read_table_run(fmt::format("{}x{}", line.at(kBitsKey).get<int>(), count));
}

// So few that a table of all of them is half as long as a recipe can be.
std::int64_t steps_together(const BitTable& bits) {
  constexpr std::int64_t kMostText = 1 << 19;
  for (std::int64_t steps = 1;; ++steps) {
    std::int64_t runs = 0, text = 0;
    for (const TableRun& run : bits.runs()) {
      const std::int64_t parts = (run.steps + steps - 1) / steps;
      runs += parts;
      text += parts * static_cast<std::int64_t>(to_string(run).size() + 1);
    }
    const bool fits = runs <= static_cast<std::int64_t>(BitTable::kMostRuns) && text <= kMostText;
    if (fits || steps >= bits.steps()) return steps;
  }
}

}  // namespace

BitTable logged_bits(const RunPaths& run, std::int64_t steps) {
  std::vector<Told> all, of_layers;
  for (LoggedLine& line : read_logged_lines(run.metrics())) {
    if (!line.step) continue;
    if (line.split.empty() && line.figure(kBitsKey))
      all.push_back({*line.step, std::move(line.values)});
    else if (line.split == kLayersSplit && tells_layer_bits(line))
      of_layers.push_back({*line.step, std::move(line.values)});
  }
  const std::vector<std::string> layers = of_layers.empty() ? std::vector<std::string>() : layers_of(run);
  BitTable table;
  auto layers_now = of_layers.begin();
  for (const Told& now : all) {
    while (table.steps() < now.end) {
      while (layers_now != of_layers.end() && layers_now->end <= table.steps()) ++layers_now;
      if (of_layers.empty()) {
        table.append(whole_run(now.values, now.end - table.steps()));
        continue;
      }
      if (layers_now == of_layers.end()) break;
      TableRun part = whole_run(now.values, std::min(now.end, layers_now->end) - table.steps());
      part.layers = bits_of_layers(layers_now->values, layers, part.bits);
      table.append(std::move(part));
    }
  }
  if (table.steps() != steps)
    throw UserError(fmt::format("{}: its lines tell the bits of {} steps, not of {}", run.metrics().string(),
                                table.steps(), steps));
  return table;
}

BitTable shuffled(const BitTable& bits, std::uint64_t seed) {
  std::vector<TableRun> parts;
  const std::int64_t most = steps_together(bits);
  for (const TableRun& run : bits.runs()) {
    for (std::int64_t left = run.steps; left > 0; left -= most) {
      parts.push_back(run);
      parts.back().steps = std::min(left, most);
    }
  }
  constexpr std::uint64_t kNoEpoch =
      ~std::uint64_t{0};  // drawn as an epoch's order is, but for none that is trained
  RandomStream random(seed, RandomPurpose::kShuffle, kNoEpoch);
  for (std::size_t left = parts.size(); left > 1; --left)
    std::swap(parts[left - 1], parts[random.below(static_cast<std::uint32_t>(left))]);
  BitTable table;
  for (TableRun& run : parts) table.append(std::move(run));
  return table;
}

}  // namespace lowtide
