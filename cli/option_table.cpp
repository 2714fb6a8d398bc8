#include "cli/option_table.h"

#include <fmt/format.h>

#include <functional>
#include <map>

#include "cli/commands.h"
#include "cli/parse.h"
#include "cli/recipe_arguments.h"
#include "lowtide/base/suggest.h"
#include "lowtide/engine/engine.h"
#include "lowtide/models/graph_network.h"
#include "lowtide/models/image_model.h"
#include "lowtide/models/language_model.h"
#include "lowtide/models/retinanet.h"
#include "lowtide/recipe/data_formats.h"
#include "lowtide/schedule/cycles.h"

namespace lowtide {
namespace {

using Words = std::vector<std::string>;

Words words_of(const std::vector<std::string_view>& views) { return {views.begin(), views.end()}; }

Words names_of(std::span<const Command> list) {
  Words names;
  for (const Command& command : list) names.emplace_back(command.name);
  return names;
}

Words model_names() {
  Words names;
  for (const ImageModelInfo& info : image_models()) names.push_back(info.name);
  for (const DetectionModelInfo& info : detection_models()) names.push_back(info.name);
  for (const Words& more : {language_model_names(), graph_network_names(), Words{"bert"}})
    names.insert(names.end(), more.begin(), more.end());
  return names;
}

Words engine_choices() {
  Words names = engine_names();
  names.insert(names.begin(), "auto");
  return names;
}

// What the kinds of values in help can be.
void set_values(OptionRow& row, const std::string& kind) {
  static const std::map<std::string, std::function<Words()>> names{
      {"COMMAND", [] { return names_of(commands()); }},
      {"ENGINE", engine_choices},
      {"FORMAT", [] { return words_of(data_formats()); }},
      {"MODEL", model_names},
      {"RECIPE", recipe_names},
      {"SCHEDULE", [] { return words_of(schedule_names()); }}};
  if (const auto found = names.find(kind); found != names.end()) row.words = found->second();
  if (kind.find('|') != std::string::npos) row.words = words_of(choices_in(kind));
  row.files = kind == "FILE" || kind == "IMAGE" || kind == "PATH" || kind == "RECIPE";
  row.folders = kind == "FOLDER" || kind == "DIR" || kind == "RUN";
}

OptionRow row_of(const CLI::Option& option) {
  OptionRow row;
  row.is_argument = option.get_positional();
  row.help = option.get_description();
  row.group = option.get_group();
  row.required = option.get_required();
  row.preset = option.get_default_str();
  row.many = option.get_items_expected_max() > 1;
  row.optional_value = option.get_items_expected_min() == 0;
  for (const std::string& name : option.get_lnames()) row.names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) row.names.push_back("-" + name);
  const std::string type = option.get_type_name();
  std::string kind = type.substr(0, type.find(':'));  // what follows tells a range of numbers
  if (kind.starts_with('[')) kind = kind.substr(1, kind.find(']') - 1);  // it may be left out
  if (option.get_items_expected_max() > 0) row.value = kind.empty() ? "TEXT" : kind;
  if (row.is_argument) row.names = {option.get_name(/*positional=*/true)};
  set_values(row, row.is_argument && kind.find('|') == std::string::npos ? row.names[0] : kind);
  return row;
}

CommandTable table_of(const Command& command, const std::string& name) {
  CommandTable table{name, std::string(command.purpose), "", {}, names_of(command.parts)};
  if (!command.parts.empty()) return table;
  with_options_of(command, [&](const CLI::App& app) {
    table.description = app.get_description();
    for (const CLI::Option* option : app.get_options()) {
      if (!option->get_group().empty()) table.rows.push_back(row_of(*option));  // without one it is hidden
    }
  });
  return table;
}

}  // namespace

std::vector<CommandTable> command_tables() {
  std::vector<CommandTable> tables;
  for (const Command& command : commands()) {
    tables.push_back(table_of(command, std::string(command.name)));
    for (const Command& part : command.parts)
      tables.push_back(table_of(part, fmt::format("{} {}", command.name, part.name)));
  }
  return tables;
}

}  // namespace lowtide
