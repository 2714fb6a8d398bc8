#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/parse.h"
#include "lowtide/base/json.h"
#include "lowtide/tasks/image_setup.h"
#include "lowtide/tasks/setup.h"

namespace lowtide {

int models_command(int argc, char** argv) {
  bool json = false;
  CLI::App app("List the models with their parameters and multiply-accumulates.", "models");
  app.add_flag("--json", json, "print JSON");
  if (const auto code = parse(app, argc, argv)) return *code;
  Json list = Json::array();
  if (!json)
    fmt::print("{:<20} {:>10} {:>8} {:>12} {:>10}\n", "model", "input", "classes", "parameters", "MACs");
  for (const ImageModelInfo& info : image_models()) {
    Recipe recipe;
    recipe.model = info.name;
    const ImageShape shape{3, info.input_size, info.input_size, info.classes};
    const auto execution = make_execution(recipe);
    const auto model = make_image_model(recipe, shape, execution);
    std::int64_t parameters = 0, macs = 0;
    for (const auto& parameter : model->parameters()) parameters += parameter.numel();
    for (const Ledger::Layer& layer : layers_of(*model, *execution, shape)) macs += layer.macs;
    if (json) {
      list.push_back({{"model", info.name},
                      {"input", {3, info.input_size, info.input_size}},
                      {"classes", info.classes},
                      {"parameters", parameters},
                      {"macs", macs}});
    } else {
      fmt::print("{:<20} {:>10} {:>8} {:>12} {:>8.1f} M\n", info.name,
                 fmt::format("3x{0}x{0}", info.input_size), info.classes, parameters,
                 static_cast<double>(macs) / 1e6);
    }
  }
  if (json) fmt::print("{}\n", list.dump(2));
  return 0;
}

}  // namespace lowtide
