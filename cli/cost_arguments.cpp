#include "cli/cost_arguments.h"

namespace lowtide {

void add_cost_options(CLI::App& app, CostMeasure& measure) {
  app.add_option_function<std::string>(
         "--count", [&](const std::string& text) { measure.count = parse_count(text); },
         "bit operations: actual, each layer at the bits it ran at; or paper, every layer at the scheduled "
         "bits")
      ->type_name("actual|paper")
      ->default_str(to_string(measure.count));
  app.add_option_function<std::string>(
         "--axis", [&](const std::string& text) { measure.axis = parse_axis(text); },
         "what runs are cheap in: bitops or time")
      ->type_name("bitops|time")
      ->default_str(to_string(measure.axis));
}

}  // namespace lowtide
