#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lowtide/cost/ledger.h"
#include "lowtide/data/augment.h"
#include "lowtide/data/image_dataset.h"
#include "lowtide/models/image_model.h"
#include "lowtide/nn/execution.h"
#include "lowtide/recipe/recipe.h"

namespace lowtide {

// What a network sees of a data set.
struct ImageShape {
  int channels = 0, height = 0, width = 0, classes = 0;
};

// The recipe's images; with `skip-damaged` those alone that can be decoded, `damaged` saying what is wrong with the rest.
std::shared_ptr<const ImageDataset> open_images(const DataOptions& options, Split split,
                                                std::vector<std::string>& damaged);

struct Augmentations {
  AugmentSpec train, eval;
};

// From the recipe's words to what training and evaluation do with an image; `shape` has the size of the
// files' images (0 where it varies) and is given the size that the network sees. UserError where no augmentation makes
// the one of the other.
Augmentations augmentations_of(const DataOptions& options, ImageShape& shape);

// The model of that name, initialised by the execution's seed, its layers attached to the execution by the model's own rules and
// then the recipe's (`layer_bits`). UserError for one of the recipe's that matches no layer.
std::shared_ptr<ImageModel> make_image_model(const std::string& name, const ImageShape& shape,
                                             const std::vector<std::string>& layer_bits,
                                             const std::shared_ptr<Execution>& execution);

// By one forward pass of one black image.
std::vector<Ledger::Layer> layers_of(ImageModel& model, Execution& execution, const ImageShape& shape);

}  // namespace lowtide
