#include "lowtide/tasks/detection_setup.h"

#include <fmt/format.h>

#include "lowtide/base/error.h"
#include "lowtide/tasks/chosen_layers.h"
#include "lowtide/tasks/setup.h"

namespace lowtide {

DetectionView view_of(const DataOptions& options, bool training) {
  DetectionView view;
  if (options.resize > 0) view.shorter = options.resize;
  view.longer = options.max_size > 0 ? options.max_size : view.shorter * 1024 / 608;
  if (view.longer < view.shorter) {
    throw UserError(fmt::format("max-size is {}; expected at least {}, the shorter side (resize)",
                                view.longer, view.shorter));
  }
  for (const auto& values : {options.mean, options.std}) {
    if (!values.empty() && values.size() != 3) {
      throw UserError(
          fmt::format("{} values of mean or std; expected three, for red, green and blue", values.size()));
    }
  }
  for (const double deviation : options.std) {
    if (!(deviation > 0)) throw UserError(fmt::format("std {}; expected more than 0", deviation));
  }
  view.mean = options.mean;
  view.std = options.std;
  view.flip = training && options.flip;
  return view;
}

std::vector<std::string> detector_classes(const DataOptions& options) {
  return options.classes.empty() ? voc_classes() : options.classes;
}

std::vector<std::string> classes_to_keep(const std::vector<std::string>& of_data,
                                         const DataOptions& options) {
  return options.classes.empty() && of_data == voc_classes() ? std::vector<std::string>() : of_data;
}

std::shared_ptr<RetinaNet> make_detector(const ModelOptions& options, std::size_t classes,
                                         const std::vector<std::string>& layer_bits,
                                         const std::shared_ptr<Execution>& execution) {
  auto model =
      std::make_shared<RetinaNet>(detection_model(options.name).layers, classes, options.freeze_norm);
  model->initialise(execution->seed);
  if (!options.weights.empty()) model->load_backbone(options.weights);
  attach_layers(*model, execution, {}, layer_bits, options.name);
  return model;
}

std::vector<Ledger::Layer> layers_of(RetinaNet& model, Execution& execution, std::int64_t height,
                                     std::int64_t width) {
  const auto device = model.parameters()[0].device();
  return measure_layers(model, execution, 1, [&] {
    model.forward(torch::zeros({1, 3, height, width}, device));
  });
}

std::vector<Ledger::Layer> layers_of(RetinaNet& model, Execution& execution, const DetectionView& view) {
  const ImageFit fit = fit_sides(375, 500, view.shorter, view.longer);
  return layers_of(model, execution, padded_side(fit.height), padded_side(fit.width));
}

TaskShape shape_of_detection(const Recipe& recipe) {
  constexpr std::int64_t kPublishedImages = 5717;
  TaskShape shape;
  std::int64_t images = kPublishedImages;
  std::size_t classes = detector_classes(recipe.data).size();
  try {
    const VocDataset data(recipe.data.dir, recipe.data.train_set,
                          {recipe.data.classes, recipe.data.skip_damaged});
    images = data.size();
    classes = data.classes().size();
  } catch (const UserError& missing) {
    shape.assumed =
        fmt::format("{}; counted for VOC 2012: {} training images", missing.what(), kPublishedImages);
  }
  shape.items_per_step = recipe.training.batch;
  shape.steps_per_epoch =
      static_cast<double>(images - recipe.data.validation) / static_cast<double>(recipe.training.batch);
  const auto execution = make_execution(recipe.precision, recipe.running, recipe.training.seed);
  ModelOptions untrained = recipe.model;
  untrained.weights.clear();  // need not be there to be counted
  const auto model = make_detector(untrained, classes, recipe.precision.layer_bits, execution);
  shape.layers = layers_of(*model, *execution, view_of(recipe.data, /*training=*/true));
  shape.sizes = layer_sizes(*model, shape.layers);
  return shape;
}

}  // namespace lowtide
