#include "lowtide/tasks/image_setup.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <map>

#include "lowtide/base/error.h"
#include "lowtide/nn/quant_layer.h"

namespace lowtide {

Augmentations augmentations_of(const Recipe& recipe, ImageShape& shape) {
  if (recipe.image_size > 0) shape.height = shape.width = recipe.image_size;
  if (shape.height == 0 || shape.width == 0) {
    throw UserError(
        "the images of this data set have various sizes; set --image-size, and --resize for evaluation");
  }
  AugmentSpec eval;
  eval.mean.assign(recipe.mean.begin(), recipe.mean.end());
  eval.std.assign(recipe.std.begin(), recipe.std.end());
  eval.out_height = shape.height;
  eval.out_width = shape.width;
  AugmentSpec train = eval;
  train.flip = recipe.flip;
  if (recipe.augment == "pad-crop") {
    train.kind = AugmentSpec::Kind::kPadCrop;
    train.padding = recipe.padding;
  } else if (recipe.augment == "random-resized-crop") {
    train.kind = AugmentSpec::Kind::kRandomResizedCrop;
  }
  if (recipe.resize > 0) {
    eval.kind = AugmentSpec::Kind::kResizeCentreCrop;
    eval.resize = recipe.resize;
  }
  return {train, eval};
}

std::shared_ptr<Execution> make_execution(const Recipe& recipe) {
  auto execution = std::make_shared<Execution>();
  execution->engine = make_engine(choose_engine(recipe.engine, recipe.device));
  execution->seed = recipe.seed;
  execution->stochastic = recipe.grad_rounding == "stochastic";
  execution->bifurcate = recipe.bifurcate;
  execution->recompute = recipe.recompute;
  return execution;
}

std::shared_ptr<ImageModel> make_image_model(const Recipe& recipe, const ImageShape& shape,
                                             const std::shared_ptr<Execution>& execution) {
  auto model = image_model(recipe.model).make(shape.channels, shape.classes);
  initialise(*model, recipe.seed);
  LayerRules rules(model->default_rules());
  for (const std::string& rule : recipe.layer_bits) rules.add(rule);
  attach_layers(*model, execution, rules);
  std::vector<std::string> names;
  for (const QuantLayer* layer : quant_layers(*model)) names.push_back(layer->layer_name());
  for (const std::string& pattern : LayerRules(recipe.layer_bits).unmatched(names)) {
    throw UserError(fmt::format("layer-bits: '{}' matches no layer of {}; `lowtide cost` lists them", pattern,
                                recipe.model));
  }
  return model;
}

std::vector<Ledger::Layer> layers_of(ImageModel& model, Execution& execution, const ImageShape& shape) {
  std::map<std::string, LayerPrecision> rules;
  for (const QuantLayer* layer : quant_layers(model)) rules[layer->layer_name()] = layer->rule();
  std::vector<Ledger::Layer> layers;
  const Bits before = execution.bits;
  execution.bits = {};
  execution.listener = [&](const LayerEvent& event) {
    layers.push_back({event.layer, event.macs_per_item, rules.at(event.layer)});
  };
  const torch::NoGradGuard no_grad;
  const bool was_training = model.is_training();
  model.eval();
  const auto device = model.parameters()[0].device();
  model.forward(torch::zeros({1, shape.channels, shape.height, shape.width}, device));
  model.train(was_training);
  execution.listener = nullptr;
  execution.bits = before;
  return layers;
}

}  // namespace lowtide
