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

// Schedules that can be shifted up and down, and so meet a budget.
bool can_have_budget(const ScheduleSpec& spec) {
  return !spec.is_grad_line && (spec.name == "static" || is_table(spec) || spec.follows_rates() ||
                                find_cyclic(spec.name) != nullptr);
}

void read_grad(ScheduleSpec& spec, std::string_view text);

std::string print_grad(const ScheduleSpec& spec) {
  return spec.grad_line.empty() ? print_range(spec.grad) : fmt::format("({})", to_string(spec.grad_line[0]));
}

using Spec = ScheduleSpec;
using Text = std::string_view;

const std::array kParameters{
    Parameter{"n", false, [](const Spec& s) { return find_cyclic(s.name) != nullptr; },
              [](Spec& s, Text text) { s.cycles = read_integer(text); },
              [](const Spec& s) { return fmt::format("{}", s.cycles); }},
    Parameter{"grad", false, [](const Spec& s) { return s.name != "fp32" && !s.is_grad_line; }, read_grad,
              print_grad},
    Parameter{"k", false, [](const Spec& s) { return has_profile(s, Profile::kExponential); },
              [](Spec& s, Text text) { s.k = read_real(text); },
              [](const Spec& s) { return s.k == Spec{}.k ? "" : fmt::format("{}", s.k); }},
    Parameter{"c", false, [](const Spec& s) { return has_profile(s, Profile::kRex); },
              [](Spec& s, Text text) { s.c = read_real(text); },
              [](const Spec& s) { return s.c == Spec{}.c ? "" : fmt::format("{}", s.c); }},
    Parameter{"alpha", false, [](const Spec& s) { return s.name == "matched" || s.name == "waterfill"; },
              [](Spec& s, Text text) { s.alpha = read_real(text); },
              [](const Spec& s) { return s.alpha == Spec{}.alpha ? "" : fmt::format("{}", s.alpha); }},
    Parameter{"every", false, [](const Spec& s) { return s.decides_by_budget(); },
              [](Spec& s, Text text) { s.every = read_integer(text); },
              [](const Spec& s) { return fmt::format("{}", s.every); }},
    Parameter{"budget", false, can_have_budget, [](Spec& s, Text text) { s.budget = read_real(text); },
              [](const Spec& s) { return s.budget ? fmt::format("{}", *s.budget) : ""; }},
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

void read_length(Part& part, std::string_view text) {
  if (text.ends_with('%')) {
    part.percent = read_real(text.substr(0, text.size() - 1));
  } else {
    part.steps = read_integer(text);
  }
}

int read_bits_or_fp32(std::string_view text) {
  return equal_ignoring_case(text, "fp32") ? 0 : read_bits(text);
}

// Reads `DELAY [at=BITS|fp32]` and returns how many words it took.
std::size_t read_delay(ScheduleSpec& spec, const std::vector<std::string_view>& words, std::size_t at) {
  if (at + 1 >= words.size()) throw UserError("expected delayed STEPS SCHEDULE or delayed PERCENT% SCHEDULE");
  Part delay;
  read_length(delay, words[at]);
  const std::string_view next = words[at + 1];
  const bool names_bits = next.starts_with("at=");
  if (names_bits) delay.bits = read_bits_or_fp32(next.substr(3));
  spec.delay = delay;
  return names_bits ? 2 : 1;
}

// Words, where what is in brackets is part of one: grad=(LR 6:8 n=2).
std::vector<std::string_view> split_line(std::string_view text) {
  std::vector<std::string_view> words;
  std::ptrdiff_t open = 0;  // brackets
  for (const std::string_view word : split_words(text)) {
    if (open > 0) {
      const char* begin = words.back().data();
      words.back() = {begin, static_cast<std::size_t>(word.data() + word.size() - begin)};
    } else {
      words.push_back(word);
    }
    open += std::count(word.begin(), word.end(), '(') - std::count(word.begin(), word.end(), ')');
  }
  return words;
}

// Reads `then BITS|fp32 last=STEPS|PERCENT%` off the end of the words.
void read_tail(ScheduleSpec& spec, std::vector<std::string_view>& words) {
  const auto then =
      std::find_if(words.begin(), words.end(), [](auto word) { return equal_ignoring_case(word, "then"); });
  if (then == words.end()) return;
  if (words.end() - then != 3 || !then[2].starts_with("last="))
    throw UserError("expected then BITS last=STEPS or then fp32 last=PERCENT% at the end");
  spec.tail.emplace();
  spec.tail->bits = read_bits_or_fp32(then[1]);
  read_length(*spec.tail, then[2].substr(5));
  words.erase(then, words.end());
}

ScheduleSpec read_words(std::vector<std::string_view> words, bool is_grad_line = false) {
  ScheduleSpec spec;
  spec.is_grad_line = is_grad_line;
  read_tail(spec, words);
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

void read_grad(ScheduleSpec& spec, std::string_view text) {
  if (!text.starts_with('(')) {
    spec.grad = read_range(text);
    return;
  }
  if (!text.ends_with(')')) throw UserError(fmt::format("{} has no closing bracket", quoted(text)));
  spec.grad_line = {read_words(split_line(text.substr(1, text.size() - 2)), true)};
  spec.grad = spec.grad_line[0].bits;
}

std::string print_bits(const ScheduleSpec& spec) {
  if (is_progressive(spec)) return fmt::format("{}", fmt::join(spec.levels, ","));
  return is_table(spec) ? to_string(spec.table) : print_range(spec.bits);
}

std::string print_length(const Part& part) {
  return part.percent ? fmt::format("{}%", *part.percent) : fmt::format("{}", part.steps);
}

std::string print_bits_or_fp32(int bits) { return bits == 0 ? "fp32" : fmt::format("{}", bits); }

std::string print_delay(const Part& delay) {
  const std::string length = print_length(delay);
  if (!delay.bits) return fmt::format("delayed {} ", length);
  return fmt::format("delayed {} at={} ", length, print_bits_or_fp32(*delay.bits));
}

}  // namespace

Bits ScheduleSpec::highest() const { return name == "fp32" ? Bits{} : Bits{bits.high, grad.high}; }

Bits part_bits(const Part& part, Bits highest) {
  if (!part.bits) return highest;
  return *part.bits == 0 ? Bits{} : Bits{*part.bits, highest.backward};
}

Bits ScheduleSpec::last() const { return tail ? part_bits(*tail, highest()) : highest(); }

ScheduleSpec parse_schedule(std::string_view text) {
  try {
    ScheduleSpec spec = read_words(split_line(text));
    check(spec);
    return spec;
  } catch (const UserError& error) {
    throw UserError(fmt::format("schedule {}: {}", quoted(text), error.what()));
  }
}

std::string to_string(const ScheduleSpec& spec) {
  std::string text = spec.delay ? print_delay(*spec.delay) : "";
  text += spec.name;
  if (spec.name != "fp32") text += fmt::format(" {}", print_bits(spec));
  for (const Parameter& parameter : kParameters) {
    if (!parameter.applies(spec)) continue;
    const std::string value = parameter.print(spec);
    if (!value.empty()) text += fmt::format(" {}={}", parameter.key, value);
  }
  if (spec.tail)
    text += fmt::format(" then {} last={}", print_bits_or_fp32(*spec.tail->bits), print_length(*spec.tail));
  return text;
}

}  // namespace lowtide
