#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/parse.h"
#include "lowtide/base/json.h"
#include "lowtide/tasks/detection_setup.h"
#include "lowtide/tasks/image_setup.h"
#include "lowtide/tasks/setup.h"

namespace lowtide {
namespace {

Json row(const std::string& name, const std::vector<std::int64_t>& input, std::size_t classes,
         const torch::nn::Module& model, const std::vector<Ledger::Layer>& layers) {
  std::int64_t parameters = 0, macs = 0;
  for (const auto& parameter : model.parameters()) parameters += parameter.numel();
  for (const Ledger::Layer& layer : layers) macs += layer.macs;
  return {
      {"model", name}, {"input", input}, {"classes", classes}, {"parameters", parameters}, {"macs", macs}};
}

Json image_row(const ImageModelInfo& info) {
  Recipe recipe;
  recipe.model = info.name;
  const ImageShape shape{3, info.input_size, info.input_size, info.classes};
  const auto execution = make_execution(recipe);
  const auto model = make_image_model(recipe, shape, execution);
  return row(info.name, {3, info.input_size, info.input_size}, static_cast<std::size_t>(info.classes), *model,
             layers_of(*model, *execution, shape));
}

// As large as the others' images, for comparison; those of VOC are larger.
Json detection_row(const DetectionModelInfo& info) {
  constexpr std::int64_t kSide = 224;
  Recipe recipe;
  recipe.model = info.name;
  const auto execution = make_execution(recipe);
  const auto model = make_detector(recipe, execution);
  return row(info.name, {3, kSide, kSide}, kVocClasses.size(), *model,
             layers_of(*model, *execution, kSide, kSide));
}

}  // namespace

int models_command(int argc, char** argv) {
  bool json = false;
  CLI::App app("List the models with their parameters and multiply-accumulates.", "models");
  app.add_flag("--json", json, "print JSON");
  if (const auto code = parse(app, argc, argv)) return *code;
  Json list = Json::array();
  for (const ImageModelInfo& info : image_models()) list.push_back(image_row(info));
  for (const DetectionModelInfo& info : detection_models()) list.push_back(detection_row(info));
  if (json) return fmt::print("{}\n", list.dump(2)), 0;
  fmt::print("{:<20} {:>10} {:>8} {:>12} {:>10}\n", "model", "input", "classes", "parameters", "MACs");
  for (const Json& model : list) {
    const auto input = model.at("input").get<std::vector<std::int64_t>>();
    fmt::print("{:<20} {:>10} {:>8} {:>12} {:>8.1f} M\n", model.at("model").get<std::string>(),
               fmt::format("{}x{}x{}", input[0], input[1], input[2]), model.at("classes").get<int>(),
               model.at("parameters").get<std::int64_t>(), model.at("macs").get<double>() / 1e6);
  }
  return 0;
}

}  // namespace lowtide
