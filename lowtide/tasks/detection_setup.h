#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lowtide/cost/ledger.h"
#include "lowtide/data/detection/detection_loader.h"
#include "lowtide/models/retinanet.h"
#include "lowtide/nn/execution.h"
#include "lowtide/tasks/task.h"

namespace lowtide {

// From the recipe's words to what a detector sees of an image. UserError for sizes that cannot be.
DetectionView view_of(const DataOptions& options, bool training);

// The classes that a detector of this recipe tells apart: those it names, or VOC's.
std::vector<std::string> detector_classes(const DataOptions& options);

// What the recipe of a run says of the classes that its data has: nothing where they are VOC's and it named none.
std::vector<std::string> classes_to_keep(const std::vector<std::string>& of_data, const DataOptions& options);

// A detector of so many classes, initialised by the execution's seed and the options' file of weights, if they name one; its layers
// attached to the execution by the recipe's rules.
std::shared_ptr<RetinaNet> make_detector(const ModelOptions& options, std::size_t classes,
                                         const std::vector<std::string>& layer_bits,
                                         const std::shared_ptr<Execution>& execution);

// Its layers, with the MACs for an image of this size; or for one of 500 × 375, as most of VOC's are, in this view.
std::vector<Ledger::Layer> layers_of(RetinaNet& model, Execution& execution, std::int64_t height,
                                     std::int64_t width);
std::vector<Ledger::Layer> layers_of(RetinaNet& model, Execution& execution, const DetectionView& view);

// Without the files the number of images is that of VOC 2012.
TaskShape shape_of_detection(const Recipe& recipe);

}  // namespace lowtide
