#include "lowtide/tasks/image_setup.h"

#include <torch/torch.h>

#include "lowtide/base/error.h"
#include "lowtide/tasks/setup.h"

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

std::shared_ptr<ImageModel> make_image_model(const Recipe& recipe, const ImageShape& shape,
                                             const std::shared_ptr<Execution>& execution) {
  auto model = image_model(recipe.model).make(shape.channels, shape.classes);
  initialise(*model, recipe.seed);
  attach_layers(*model, execution, model->default_rules(), recipe);
  return model;
}

std::vector<Ledger::Layer> layers_of(ImageModel& model, Execution& execution, const ImageShape& shape) {
  const auto device = model.parameters()[0].device();
  return measure_layers(model, execution, 1, [&] {
    model.forward(torch::zeros({1, shape.channels, shape.height, shape.width}, device));
  });
}

}  // namespace lowtide
