#include "lowtide/schedule/spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <initializer_list>

#include "lowtide/base/error.h"
#include "lowtide/base/suggest.h"
#include "lowtide/schedule/cycles.h"
#include "lowtide/schedule/read_value.h"
#include "lowtide/schedule/text.h"

namespace lowtide {
namespace {

std::string print_range(BitRange range) {
  return range.low == range.high ? fmt::format("{}", range.low) : fmt::format("{}:{}", range.low, range.high);
}

bool has_profile(const ScheduleSpec& spec, Profile profile) {
  const CyclicSchedule* cyclic = find_cyclic(spec.name);
  return cyclic != nullptr && cyclic->profile == profile;
}
bool is_progressive(const ScheduleSpec& spec) { return spec.name == "progressive"; }
bool is_table(const ScheduleSpec& spec) { return spec.name == "table"; }
bool is_window(const ScheduleSpec& spec) { return spec.name == "window"; }

// Every parameter once: which schedules have it, how it is read, how it is printed (nothing: it is the
// default).
struct Parameter {
  std::string_view key;
  bool required;
  bool (*applies)(const ScheduleSpec&);
  void (*read)(ScheduleSpec&, std::string_view);
  std::string (*print)(const ScheduleSpec&);
};

using Spec = ScheduleSpec;
using Text = std::string_view;

const std::array kParameters{
    Parameter{"n", false, [](const Spec& s) { return find_cyclic(s.name) != nullptr; },
              [](Spec& s, Text text) { s.cycles = read_integer(text); },
              [](const Spec& s) { return fmt::format("{}", s.cycles); }},
    Parameter{"grad", false, [](const Spec& s) { return s.name != "fp32"; },
              [](Spec& s, Text text) { s.grad = read_range(text); },
              [](const Spec& s) { return print_range(s.grad); }},
    Parameter{"k", false, [](const Spec& s) { return has_profile(s, Profile::kExponential); },
              [](Spec& s, Text text) { s.k = read_real(text); },
              [](const Spec& s) { return s.k == Spec{}.k ? "" : fmt::format("{}", s.k); }},
    Parameter{"c", false, [](const Spec& s) { return has_profile(s, Profile::kRex); },
              [](Spec& s, Text text) { s.c = read_real(text); },
              [](const Spec& s) { return s.c == Spec{}.c ? "" : fmt::format("{}", s.c); }},
    Parameter{"steps", true, [](const Spec& s) { return s.name == "deficit"; },
              [](Spec& s, Text text) { s.steps = read_integer(text); },
              [](const Spec& s) { return fmt::format("{}", s.steps); }},
    Parameter{"from", true, is_window, [](Spec& s, Text text) { s.from = read_integer(text); },
              [](const Spec& s) { return fmt::format("{}", s.from); }},
    Parameter{"to", true, is_window, [](Spec& s, Text text) { s.to = read_integer(text); },
              [](const Spec& s) { return fmt::format("{}", s.to); }},
    Parameter{"window", false, is_progressive,
              [](Spec& s, Text text) { s.plateau.window = read_integer(text); },
              [](const Spec& s) { return fmt::format("{}", s.plateau.window); }},
    Parameter{"threshold", false, is_progressive,
              [](Spec& s, Text text) { s.plateau.threshold = read_real(text); },
              [](const Spec& s) { return fmt::format("{}", s.plateau.threshold); }},
    Parameter{"patience", false, is_progressive,
              [](Spec& s, Text text) { s.plateau.patience = read_integer(text); },
              [](const Spec& s) { return fmt::format("{}", s.plateau.patience); }},
};

std::string canonical_name(std::string_view text) {
  if (equal_ignoring_case(text, "delayed")) {
    throw UserError("a delayed schedule cannot be delayed again; add the delays");
  }
  const std::vector<std::string_view> names = schedule_names();
  for (const std::string_view name : names) {
    if (equal_ignoring_case(text, name)) return std::string(name);
  }
  throw UserError(fmt::format("unknown name {}{}; expected one of {}", quoted(text),
                              did_you_mean(text, names), fmt::join(names, ", ")));
}

void read_positional_bits(ScheduleSpec& spec, std::string_view text) {
  if (spec.name == "fp32")
    throw UserError(fmt::format("fp32 takes nothing more, but {} follows", quoted(text)));
  if (is_progressive(spec)) {
    for (const std::string_view level : split(text, ',')) spec.levels.push_back(read_bits(level));
    spec.bits = {spec.levels.front(), spec.levels.back()};
    return;
  }
  if (is_table(spec)) return spec.table.append(read_table_run(text));
  spec.bits = read_range(text);
}

void read_parameter(ScheduleSpec& spec, std::string_view key, std::string_view value) {
  std::vector<std::string_view> known;
  for (const Parameter& parameter : kParameters) {
    if (!parameter.applies(spec)) continue;
    known.push_back(parameter.key);
    if (parameter.key != key) continue;
    try {
      return parameter.read(spec, value);
    } catch (const UserError& error) {
      throw UserError(fmt::format("{}: {}", key, error.what()));
    }
  }
  throw UserError(fmt::format("{} has no parameter {}{}; it has {}", spec.name, quoted(key),
                              did_you_mean(key, known),
                              known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", "))));
}

// Reads `DELAY [at=BITS|fp32]` and returns how many words it took.
std::size_t read_delay(ScheduleSpec& spec, const std::vector<std::string_view>& words, std::size_t at) {
  if (at + 1 >= words.size()) throw UserError("expected delayed STEPS SCHEDULE or delayed PERCENT% SCHEDULE");
  Delay delay;
  const std::string_view length = words[at];
  if (length.ends_with('%')) {
    delay.percent = read_real(length.substr(0, length.size() - 1));
  } else {
    delay.steps = read_integer(length);
  }
  const std::string_view next = words[at + 1];
  const bool names_bits = next.starts_with("at=");
  if (names_bits) delay.bits = equal_ignoring_case(next.substr(3), "fp32") ? 0 : read_bits(next.substr(3));
  spec.delay = delay;
  return names_bits ? 2 : 1;
}

ScheduleSpec read_words(const std::vector<std::string_view>& words) {
  ScheduleSpec spec;
  std::size_t at = 0;
  if (!words.empty() && equal_ignoring_case(words[0], "delayed")) at = 1 + read_delay(spec, words, 1);
  if (at == words.size()) throw UserError("no schedule named; expected a line such as RR 3:8 n=8 grad=8");
  spec.name = canonical_name(words[at++]);
  if (spec.name == "static") spec.bits.low = spec.bits.high;
  std::vector<std::string_view> seen;
  for (; at < words.size(); ++at) {
    const std::size_t equals = words[at].find('=');
    const std::string_view key = equals == std::string_view::npos ? "" : words[at].substr(0, equals);
    const bool again = std::find(seen.begin(), seen.end(), key) != seen.end();
    if (again && !(key.empty() && is_table(spec))) {
      throw UserError(fmt::format("{} is given twice", key.empty() ? "the range of bits" : key));
    }
    if (!again) seen.push_back(key);
    if (equals == std::string_view::npos) {
      read_positional_bits(spec, words[at]);
    } else {
      read_parameter(spec, key, words[at].substr(equals + 1));
    }
  }
  if (!spec.table.runs().empty()) spec.bits = spec.table.bits();
  for (const Parameter& parameter : kParameters) {
    if (!parameter.required || !parameter.applies(spec)) continue;
    if (std::find(seen.begin(), seen.end(), parameter.key) == seen.end()) {
      throw UserError(fmt::format("{} needs {}=STEP", spec.name, parameter.key));
    }
  }
  return spec;
}

std::string print_bits(const ScheduleSpec& spec) {
  if (is_progressive(spec)) return fmt::format("{}", fmt::join(spec.levels, ","));
  return is_table(spec) ? to_string(spec.table) : print_range(spec.bits);
}

std::string print_delay(const Delay& delay) {
  const std::string length =
      delay.percent ? fmt::format("{}%", *delay.percent) : fmt::format("{}", delay.steps);
  if (!delay.bits) return fmt::format("delayed {} ", length);
  return fmt::format("delayed {} at={} ", length, *delay.bits == 0 ? "fp32" : fmt::format("{}", *delay.bits));
}

}  // namespace

Bits ScheduleSpec::highest() const { return name == "fp32" ? Bits{} : Bits{bits.high, grad.high}; }

ScheduleSpec parse_schedule(std::string_view text) {
  try {
    ScheduleSpec spec = read_words(split_words(text));
    check(spec);
    return spec;
  } catch (const UserError& error) {
    throw UserError(fmt::format("schedule {}: {}", quoted(text), error.what()));
  }
}

std::string to_string(const ScheduleSpec& spec) {
  std::string text = spec.delay ? print_delay(*spec.delay) : "";
  text += spec.name;
  if (spec.name != "fp32") text += " " + print_bits(spec);
  for (const Parameter& parameter : kParameters) {
    if (!parameter.applies(spec)) continue;
    const std::string value = parameter.print(spec);
    if (!value.empty()) text += fmt::format(" {}={}", parameter.key, value);
  }
  return text;
}

}  // namespace lowtide
