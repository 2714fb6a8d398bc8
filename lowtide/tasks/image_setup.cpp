#include "lowtide/tasks/image_setup.h"

#include <fmt/format.h>

#include <algorithm>

#include "lowtide/base/error.h"
#include "lowtide/base/torch.h"
#include "lowtide/data/damaged.h"
#include "lowtide/tasks/setup.h"

namespace lowtide {

namespace {

// Images of one size in the files, which the network is to see in another: found before hours of training end in an
// evaluation that cannot be.
void expect_fitting(const DataOptions& options, const ImageShape& files) {
  const int size = options.image_size;
  if (size == 0 || files.height == 0 || (files.height == size && files.width == size)) return;
  const int padding = (std::max(size - std::min(files.height, files.width), 0) + 1) / 2;
  if (options.augment == "none") {
    throw UserError(fmt::format(
        "image-size is {}, but the images are {}x{} and augment is none, which leaves them so; use --augment "
        "random-resized-crop, or pad-crop with --padding {} or more, and --resize {} for evaluation",
        size, files.width, files.height, padding, size));
  }
  if (options.augment == "pad-crop" && options.padding < padding) {
    throw UserError(fmt::format("image-size is {}, but the images are {}x{}; use --padding {} or more", size,
                                files.width, files.height, padding));
  }
  if (options.resize == 0) {
    throw UserError(fmt::format("image-size is {}, but the images are {}x{}; use --resize {} for evaluation",
                                size, files.width, files.height, size));
  }
}

}  // namespace

std::shared_ptr<const ImageDataset> open_images(const DataOptions& options, Split split,
                                                std::vector<std::string>& damaged) {
  std::shared_ptr<const ImageDataset> all = open_image_dataset(options.format, options.dir, split);
  return options.skip_damaged ? without_damaged(std::move(all), damaged) : all;
}

Augmentations augmentations_of(const DataOptions& options, ImageShape& shape) {
  expect_fitting(options, shape);
  if (options.image_size > 0) shape.height = shape.width = options.image_size;
  if (shape.height == 0 || shape.width == 0) {
    throw UserError(
        "images in files of their own may have any size; set --image-size, and --resize for evaluation");
  }
  if (options.resize > 0 && options.resize < std::max(shape.height, shape.width)) {
    throw UserError(fmt::format("resize is {}, but the network sees {}x{}; expected {} or more",
                                options.resize, shape.width, shape.height,
                                std::max(shape.height, shape.width)));
  }
  AugmentSpec eval;
  eval.mean.assign(options.mean.begin(), options.mean.end());
  eval.std.assign(options.std.begin(), options.std.end());
  eval.out_height = shape.height;
  eval.out_width = shape.width;
  AugmentSpec train = eval;
  train.flip = options.flip;
  if (options.augment == "pad-crop") {
    train.kind = AugmentSpec::Kind::kPadCrop;
    train.padding = options.padding;
  } else if (options.augment == "random-resized-crop") {
    train.kind = AugmentSpec::Kind::kRandomResizedCrop;
  }
  if (options.resize > 0) {
    eval.kind = AugmentSpec::Kind::kResizeCentreCrop;
    eval.resize = options.resize;
  }
  return {train, eval};
}

std::shared_ptr<ImageModel> make_image_model(const std::string& name, const ImageShape& shape,
                                             const std::vector<std::string>& layer_bits,
                                             const std::shared_ptr<Execution>& execution) {
  auto model = image_model(name).make(shape.channels, shape.classes);
  initialise(*model, execution->seed);
  attach_layers(*model, execution, model->default_rules(), layer_bits, name);
  return model;
}

std::vector<Ledger::Layer> layers_of(ImageModel& model, Execution& execution, const ImageShape& shape) {
  const auto device = model.parameters()[0].device();
  return measure_layers(model, execution, 1, [&] {
    model.forward(torch::zeros({1, shape.channels, shape.height, shape.width}, device));
  });
}

}  // namespace lowtide
