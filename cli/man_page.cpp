#include "cli/man_page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <utf8proc.h>

#include <algorithm>

#include "lowtide/schedule/text.h"

namespace lowtide {
namespace {

// Text as roff takes it: nothing of it is a request, a dash is the one to type, other characters by number.
std::string escaped(std::string_view text) {
  std::string result;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  for (utf8proc_ssize_t at = 0, size = static_cast<utf8proc_ssize_t>(text.size()); at < size;) {
    utf8proc_int32_t code = 0;
    at += std::max<utf8proc_ssize_t>(1, utf8proc_iterate(bytes + at, size - at, &code));
    if (code == '\\') {
      result += "\\e";
    } else if (code == '-') {
      result += "\\-";
    } else if (code == '`') {
      result += "\\(ga";
    } else if (code == '\'') {
      result += "\\(aq";
    } else if (code < 0x80) {
      result += static_cast<char>(std::max(code, 0));
    } else {
      result += fmt::format("\\[u{:04X}]", code);
    }
  }
  return result.starts_with('.') ? "\\&" + result : result;
}

std::string bold(std::string_view text) { return fmt::format("\\fB{}\\fR", escaped(text)); }
std::string italic(std::string_view text) { return fmt::format("\\fI{}\\fR", escaped(text)); }

// Names are not to be broken: .nh.
std::string heading(const std::string& page, std::string_view purpose, const std::string& version) {
  std::string title = page;
  std::transform(title.begin(), title.end(), title.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
  return fmt::format(".TH {} 1 \"\" \"{}\" \"User Commands\"\n.nh\n.SH NAME\n{} \\- {}\n", escaped(title),
                     escaped(version), escaped(page), escaped(purpose));
}

// Lines as they are where they begin with a space, paragraphs otherwise.
std::string prose(std::string_view text) {
  std::string result;
  bool as_it_is = false;
  for (const std::string_view line : split(text, '\n')) {
    const bool indented = line.starts_with(' ');
    if (indented != as_it_is) result += indented ? ".PP\n.nf\n" : ".fi\n.PP\n";
    as_it_is = indented;
    if (line.empty()) {
      if (!result.empty() && !result.ends_with(".PP\n")) result += ".PP\n";
    } else {
      result += escaped(line) + "\n";
    }
  }
  if (as_it_is) result += ".fi\n";
  // A paragraph at the end would be an empty one.
  return result.ends_with("\n.PP\n") ? result.substr(0, result.size() - 4) : result;
}

std::string value_text(const OptionRow& row) {
  if (row.value.empty()) return "";
  const std::string value = italic(row.value) + (row.many ? " ..." : "");
  return row.optional_value ? fmt::format(" [{}]", value) : " " + value;
}

std::string entry(const OptionRow& row) {
  std::vector<std::string> names;
  for (const std::string& name : row.names) names.push_back(row.is_argument ? italic(name) : bold(name));
  std::string text = fmt::format(".TP\n{}{}\n{}", fmt::join(names, ", "),
                                 row.is_argument ? (row.many ? " ..." : "") : value_text(row),
                                 escaped(row.help.empty() ? "no more is known" : row.help));
  if (!row.preset.empty() && !row.value.empty()) text += fmt::format("; default: {}", escaped(row.preset));
  text += ".\n";
  const bool shown = row.value.find('|') != std::string::npos;
  if (!row.words.empty() && !shown)
    text += fmt::format("Known are {}.\n", escaped(fmt::format("{}", fmt::join(row.words, ", "))));
  return text;
}

std::string synopsis(const CommandTable& table) {
  std::string text = fmt::format(".SH SYNOPSIS\n{}", bold("lowtide " + table.name));
  if (!table.parts.empty()) return text + fmt::format(" {} [{}]\n", italic("COMMAND"), italic("options"));
  for (const OptionRow& row : table.rows) {
    if (!row.is_argument && row.required)
      text += fmt::format(" {} {}", bold(row.names[0]), italic(row.value) + (row.many ? " ..." : ""));
  }
  text += fmt::format(" [{}]", italic("options"));
  for (const OptionRow& row : table.rows) {
    if (!row.is_argument) continue;
    const std::string name = italic(row.names[0]) + (row.many ? " ..." : "");
    text += row.required ? " " + name : fmt::format(" [{}]", name);
  }
  return text + "\n";
}

// Arguments first, then the options' groups in the order in which they were defined.
std::string options(const CommandTable& table) {
  std::string arguments, text;
  std::vector<std::string> groups;
  for (const OptionRow& row : table.rows) {
    if (row.is_argument) {
      arguments += entry(row);
    } else if (std::find(groups.begin(), groups.end(), row.group) == groups.end()) {
      groups.push_back(row.group);
    }
  }
  if (!arguments.empty()) text += ".SH ARGUMENTS\n" + arguments;
  text += ".SH OPTIONS\n";
  for (const std::string& group : groups) {
    if (groups.size() > 1) text += fmt::format(".SS {}\n", escaped(group));
    for (const OptionRow& row : table.rows) {
      if (!row.is_argument && row.group == group) text += entry(row);
    }
  }
  return text;
}

std::string listed(const std::string& name, const std::string& purpose) {
  return fmt::format(".TP\n{}\n{}.\n", bold(name), escaped(purpose));
}

constexpr const char* kExitStatus =
    ".SH EXIT STATUS\n"
    ".TP\n0\nwhat was asked for is done.\n"
    ".TP\n2\na mistake in what was asked; one line on standard error says which.\n"
    ".TP\n1\nan error of the program itself.\n"
    ".TP\n128 + N\nsignal N stopped it; a run has saved its state and can be resumed.\n";

std::string see_also(const std::string& others) { return fmt::format(".SH SEE ALSO\n{}\n", others); }

std::string reference(const std::string& page) { return fmt::format("{}(1)", bold(page)); }

}  // namespace

std::string page_name(const CommandTable& table) {
  std::string name = "lowtide-" + table.name;
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

std::string program_page(const std::vector<CommandTable>& tables, const std::string& version) {
  std::string text = heading("lowtide", "neural networks trained in low precision, on a schedule", version);
  text += fmt::format(".SH SYNOPSIS\n{} {} [{}]\n.br\n{}\n", bold("lowtide"), italic("COMMAND"),
                      italic("options"), bold("lowtide --version"));
  text +=
      ".SH DESCRIPTION\n"
      "Lowtide trains neural networks with weights, activations and gradients of a few bits, whose number "
      "moves\n"
      "between two limits several times in a run: cyclic precision training.\n"
      "A run is a folder; a run that was stopped goes on where it was.\n"
      ".SH COMMANDS\n";
  std::string pages;
  for (const CommandTable& table : tables) {
    text += listed(table.name, table.purpose);
    pages += (pages.empty() ? "" : ",\n") + reference(page_name(table));
  }
  return text + kExitStatus + see_also(pages);
}

std::string command_page(const CommandTable& table, const std::string& version) {
  std::string text = heading(page_name(table), table.purpose, version) + synopsis(table);
  if (table.parts.empty())
    return text + ".SH DESCRIPTION\n" + prose(table.description) + options(table) + kExitStatus +
           see_also(reference("lowtide"));
  text += ".SH COMMANDS\n";
  std::string pages = reference("lowtide");
  for (const std::string& part : table.parts) {
    text += fmt::format(".TP\n{}\nsee {}.\n", bold(part), reference(page_name(table) + "-" + part));
    pages += ",\n" + reference(page_name(table) + "-" + part);
  }
  return text + see_also(pages);
}

}  // namespace lowtide
