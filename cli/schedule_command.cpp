#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/parse.h"
#include "lowtide/base/error.h"
#include "lowtide/base/json.h"
#include "lowtide/base/suggest.h"
#include "lowtide/cost/summary.h"
#include "lowtide/io/standard_output.h"
#include "lowtide/recipe/table_file.h"
#include "lowtide/schedule/cycles.h"
#include "lowtide/schedule/plot.h"
#include "lowtide/schedule/spec.h"
#include "lowtide/schedule/svg.h"
#include "lowtide/schedule/text.h"
#include "lowtide/train/learning_rate.h"

namespace lowtide {
namespace {

constexpr const char* kHelp =
    "Draw a precision schedule, with its mean bits, relative cost and saving.\n"
    "\n"
    "SCHEDULE is a name, completed by the options below, or a whole line as recipes have it:\n"
    "  RR 3:8 n=8 grad=8                    one of the ten: RR RTH LR LT CR CT ETV RTV ER ETH\n"
    "  static 8 grad=8                      fp32\n"
    "  deficit 3:8 grad=8 steps=1000        low for 1000 steps, then high\n"
    "  window 3:8 grad=8 from=1000 to=2000  low in [1000, 2000), else high\n"
    "  delayed 500 RR 3:8 n=8 grad=8        high for 500 steps, then RR; also 25%, and at=fp32\n"
    "  table 8x100 5x1500 8x400 grad=8      runs of bits, or @FILE of them, or of rows step,bits\n"
    "  matched 3:8 grad=8 budget=0.63       low where the learning rate is high (--lr-schedule ...)\n"
    "  price 3:8 grad=8 budget=0.63         a closed loop: a bit more where it buys more than training does\n"
    "  waterfill 3:8 grad=8 budget=0.63     a closed loop with bits for every layer, by its sensitivity\n"
    "  progressive 3,4,6,8 grad=8           the next bits when the loss stops falling\n"
    "\n"
    "budget=0.63 on static, matched, price, waterfill and the ten: bit operations of the whole run, as a "
    "share of\n"
    "static at the highest bits. grad=(LR 6:8 n=2): gradient bits on a schedule of their own. At the end of "
    "a line, but "
    "not of\n"
    "progressive: then 32 last=5%, the last steps' forward pass in fp32; then fp32 last=5%, gradients too.\n";

constexpr const char* kRates = "steps|cosine|linear|inverse-sqrt|constant";

struct Options {
  std::string schedule;
  std::optional<std::int64_t> steps;  // 64000, or those of a table
  bool all = false;
  bool json = false;
  std::string svg;
  std::string bits;
  std::string delay;
  TrainingOptions training;                                     // its learning rate, which `matched` follows
  std::vector<std::pair<std::string, std::string>> parameters;  // key of the schedule's line, value
};

void define(CLI::App& app, Options& options) {
  app.add_option("SCHEDULE", options.schedule, "a name, or a whole line in quotes");
  app.add_flag("--all", options.all, "compare the ten in one table");
  app.add_option("--steps", options.steps, "training steps T (64000, or those of a table)");
  app.add_option("--bits", options.bits, "forward bits, lowest:highest (3:8), one number, or a list 3,4,6,8");
  app.add_option("--delay", options.delay, "start after so many steps, or a percentage such as 25%");
  const auto parameter = [&](const char* option, const char* key, const char* help) {
    app.add_option_function<std::string>(
           option, [&options, key](const std::string& value) { options.parameters.emplace_back(key, value); },
           help)
        ->type_name("TEXT");
  };
  parameter("--cycles,-n", "n", "cycles of the ten (8); even for triangular ones");
  parameter("--grad-bits", "grad", "gradient bits (8), or a range that moves with the forward bits");
  parameter("--k", "k", "rate of exponential profiles (4)");
  parameter("--c", "c", "bend of REX profiles (0.9)");
  parameter("--deficit", "steps", "deficit: its length in steps");
  parameter("--from", "from", "window: its first step");
  parameter("--to", "to", "window: the step after its last");
  parameter("--window", "window", "progressive: losses averaged at a time (100)");
  parameter("--threshold", "threshold", "progressive: relative fall that counts as falling (0.01)");
  parameter("--patience", "patience", "progressive: averages without a fall before climbing (3)");
  parameter("--every", "every", "price, waterfill: steps between two decisions (100)");
  parameter("--budget", "budget",
            "static, matched, price, waterfill, the ten: share of what static at the highest bits costs");
  parameter("--alpha", "alpha",
            "matched, waterfill: half of it is the bits that halving the learning rate adds (1)");
  TrainingOptions& training = options.training;
  app.add_option("--lr-schedule", training.lr_schedule, "matched: the recipe's")
      ->type_name(kRates)
      ->capture_default_str();
  app.add_option("--lr-steps", training.lr_steps, "matched: the recipe's");
  app.add_option("--lr-gamma", training.lr_gamma, "matched: the recipe's");
  app.add_option("--lr-final", training.lr_final, "matched: the recipe's");
  app.add_option("--lr-delay", training.lr_delay, "matched: the recipe's");
  app.add_option("--warmup", training.warmup, "matched: the recipe's");
  app.add_flag("--json", options.json, "print JSON: mean bits, cost, saving (0 to 1), runs of [bits, steps]");
  app.add_option("--svg", options.svg, "write a picture to this file; -: standard output, and nothing else")
      ->check(no_file_of_a_run())
      ->type_name("FILE");
}

// The options are words of the schedule's line: one parser reads both, with the same checks and messages.
ScheduleSpec complete(const Options& options, const std::string& schedule) {
  std::string line = options.delay.empty() ? "" : fmt::format("delayed {} ", options.delay);
  line += schedule;
  if (!options.bits.empty()) line += fmt::format(" {}", options.bits);
  for (const auto& [key, value] : options.parameters) line += fmt::format(" {}={}", key, value);
  return parse_schedule(with_tables_read(line));
}

// With --all, a parameter is passed to those of the ten that have it.
ScheduleSpec complete_one_of_ten(Options options, const CyclicSchedule& cyclic) {
  std::erase_if(options.parameters, [&](const auto& parameter) {
    return (parameter.first == "k" && cyclic.profile != Profile::kExponential) ||
           (parameter.first == "c" && cyclic.profile != Profile::kRex);
  });
  return complete(options, std::string(cyclic.name));
}

struct Entry {
  ScheduleSpec spec;
  std::string group;
  std::int64_t steps = 0;
  ScheduleSummary summary;
};

std::string display_name(const ScheduleSpec& spec) { return spec.delay ? "delayed " + spec.name : spec.name; }

Json to_json(const Entry& entry) {
  Json runs = Json::array();
  for (const BitRun& run : entry.summary.runs) {
    // Runs are of forward bits: where only the gradient bits change, the run goes on.
    if (!runs.empty() && runs.back()[0] == run.bits.forward) {
      runs.back()[1] = runs.back()[1].get<std::int64_t>() + run.count;
    } else {
      runs.push_back({run.bits.forward, run.count});
    }
  }
  const ScheduleSpec& spec = entry.spec;
  const bool is_fp32_throughout = spec.name == "fp32";
  return {{"name", display_name(spec)},
          {"schedule", to_string(spec)},
          {"steps", entry.steps},
          {"cycles", find_cyclic(spec.name) != nullptr ? Json(spec.cycles) : Json()},
          {"q_min", is_fp32_throughout ? 0 : spec.bits.low},
          {"q_max", is_fp32_throughout ? 0 : spec.bits.high},
          {"mean_bits", entry.summary.mean_bits},
          {"relative_cost", entry.summary.relative_cost},
          {"saving", entry.summary.saving},
          {"saving_against", static_line(peak_bits(spec))},
          {"runs", std::move(runs)}};
}

void print_drawing(const Entry& entry) {
  const ScheduleSummary& summary = entry.summary;
  fmt::print("{}, {} steps\n\n{}\n", shortened(to_string(entry.spec)), entry.steps,
             text_plot(summary.runs, terminal_charset()));
  fmt::print("mean bits      {:.3f}\n", summary.mean_bits);
  fmt::print("relative cost  {:.4f}   of fp32\n", summary.relative_cost);
  if (to_string(entry.spec) == "fp32") return;
  if (entry.spec.budget) {
    const Bits highest = entry.spec.highest();
    fmt::print("budget         {:.4f}   of {}, spent {:.6f}\n", *entry.spec.budget, static_line(highest),
               summary.relative_cost / relative_cost(highest));
  }
  fmt::print("saving         {:.2f} %  against {}\n", 100.0 * summary.saving,
             static_line(peak_bits(entry.spec)));
}

void print_table(const std::vector<Entry>& entries) {
  fmt::print("{} steps, n={}, bits {}:{}, gradient bits {}\n\n", entries[0].steps, entries[0].spec.cycles,
             entries[0].spec.bits.low, entries[0].spec.bits.high, entries[0].spec.grad.high);
  fmt::print("name  saving    group    mean bits  relative cost  profile\n");
  for (const Entry& entry : entries) {
    fmt::print("{:<4}  {:>6.2f} %  {:<7}  {:>9.3f}  {:>13.4f}  {}\n", entry.spec.name,
               100.0 * entry.summary.saving, entry.group, entry.summary.mean_bits,
               entry.summary.relative_cost, find_cyclic(entry.spec.name)->description);
  }
  fmt::print("\nsaving: against {}\n", static_line(peak_bits(entries[0].spec)));
}

void write_svg(const std::string& path, const std::vector<Entry>& entries) {
  std::vector<SchedulePicture> pictures;
  for (const Entry& entry : entries) {
    const std::string saving = fmt::format("saving {:.1f} %", 100.0 * entry.summary.saving);
    pictures.push_back({entries.size() == 1 ? shortened(to_string(entry.spec)) : display_name(entry.spec),
                        entry.group.empty() ? saving : fmt::format("{}, {}", saving, entry.group),
                        entry.summary.runs});
  }
  write_output(path, schedule_svg(pictures));
}

std::vector<Entry> entries_of(const Options& options) {
  std::vector<Entry> entries;
  const auto add = [&](const ScheduleSpec& spec, std::string_view group) {
    const std::int64_t own = spec.name == "table" && !spec.delay ? spec.table.steps() : 64000;
    const std::int64_t steps = options.steps.value_or(own);
    entries.push_back({spec, std::string(group), steps,
                       summarise(spec, steps, rates_of(options.training, std::max<std::int64_t>(1, steps)))});
  };
  if (!options.all) {
    add(complete(options, options.schedule), "");
  } else {
    for (const CyclicSchedule& cyclic : cyclic_schedules())
      add(complete_one_of_ten(options, cyclic), cyclic.group);
  }
  return entries;
}

}  // namespace

int schedule_command(int argc, char** argv) {
  CLI::App app(kHelp, "schedule");
  Options options;
  define(app, options);
  if (const auto code = parse(app, argc, argv)) return *code;
  if (options.all != options.schedule.empty()) {
    throw UserError("schedule: name one schedule, or say --all; see `lowtide schedule --help`");
  }
  expect_choice("lr-schedule", options.training.lr_schedule, kRates);
  Recipe rates;
  rates.training = options.training;
  check_values(rates);
  const std::vector<Entry> entries = entries_of(options);
  if (!options.svg.empty()) write_svg(options.svg, entries);
  if (is_standard_output(options.svg)) return 0;
  if (entries[0].spec.is_closed_loop()) fmt::print(stderr, "note: {}\n", closed_loop_note(entries[0].spec));
  if (options.json) {
    Json json = Json::array();
    for (const Entry& entry : entries) json.push_back(to_json(entry));
    fmt::print("{}\n", (options.all ? json : json[0]).dump());
  } else if (options.all) {
    print_table(entries);
  } else {
    print_drawing(entries[0]);
  }
  return 0;
}

}  // namespace lowtide
