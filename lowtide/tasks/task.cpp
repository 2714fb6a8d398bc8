#include "lowtide/tasks/task.h"

#include <fmt/format.h>

#include <utility>

#include "lowtide/base/error.h"
#include "lowtide/data/graph/drawn_graph.h"
#include "lowtide/tasks/chosen_layers.h"
#include "lowtide/tasks/detection.h"
#include "lowtide/tasks/detection_setup.h"
#include "lowtide/tasks/entailment.h"
#include "lowtide/tasks/image_classification.h"
#include "lowtide/tasks/image_setup.h"
#include "lowtide/tasks/language_modelling.h"
#include "lowtide/tasks/node_classification.h"
#include "lowtide/tasks/setup.h"

namespace lowtide {
namespace {

struct PublishedData {
  std::string_view format;
  ImageShape shape;
  std::int64_t train_items;
  std::string_view name;
};

// What each format's best-known data set holds.
constexpr std::array kPublished{
    PublishedData{"idx", {1, 28, 28, 10}, 60000, "MNIST"},
    PublishedData{"cifar10", {3, 32, 32, 10}, 50000, "CIFAR-10"},
    PublishedData{"cifar100", {3, 32, 32, 100}, 50000, "CIFAR-100"},
    PublishedData{"folder", {3, 0, 0, 1000}, 1281167, "ImageNet"},
    PublishedData{"tiny-imagenet", {3, 64, 64, 200}, 100000, "Tiny-ImageNet"},
};

TaskShape shape_of_image_task(const Recipe& recipe) {
  ImageShape shape;
  TaskShape result;
  std::int64_t items = 0;
  try {
    std::vector<std::string> damaged;
    const auto data = open_images(recipe.data, Split::kTrain, damaged);
    shape = {data->channels(), data->height(), data->width(), data->classes()};
    items = data->size();
  } catch (const UserError& missing) {
    for (const PublishedData& published : kPublished) {
      if (published.format != recipe.data.format) continue;
      shape = published.shape;
      items = published.train_items;
      result.assumed = fmt::format("{}; counted for {}: {} images of {} classes", missing.what(),
                                   published.name, published.train_items, shape.classes);
    }
  }
  result.items_per_step = recipe.training.batch;
  result.steps_per_epoch =
      static_cast<double>(items - recipe.data.validation) / static_cast<double>(recipe.training.batch);
  augmentations_of(recipe.data, shape);
  const auto execution = make_execution(recipe.precision, recipe.running, recipe.training.seed);
  const auto model = make_image_model(recipe.model.name, shape, recipe.precision.layer_bits, execution);
  result.layers = layers_of(*model, *execution, shape);
  result.sizes = layer_sizes(*model, result.layers);
  return result;
}

}  // namespace

std::unique_ptr<Task> make_task(const Recipe& recipe, std::shared_ptr<Ranks> ranks) {
  switch (task_of(recipe.data)) {
    case TaskKind::kImages:
      return std::make_unique<ImageClassification>(recipe, std::move(ranks));
    case TaskKind::kLanguage:
      return std::make_unique<LanguageModelling>(recipe, std::move(ranks));
    case TaskKind::kNodes:
      return std::make_unique<NodeClassification>(recipe, std::move(ranks));
    case TaskKind::kDetection:
      return std::make_unique<ObjectDetection>(recipe, std::move(ranks));
    case TaskKind::kEntailment:
      return std::make_unique<Entailment>(recipe, std::move(ranks));
  }
  invariant_failed("a task of a known kind", __FILE__, __LINE__, recipe.data.format);
}

std::optional<double> Task::training_metric(double /*loss*/, double correct) const { return correct; }

Evaluation Task::probe(Bits bits, std::int64_t items) {
  const KeptBuffers kept(model());
  const std::int64_t step = std::exchange(execution().step, kNoStep);
  execution().batch_statistics = true;
  Evaluation evaluation = evaluate_sample(Split::kTrain, bits, items);
  execution().batch_statistics = false;
  execution().step = step;
  return evaluation;
}

std::unique_ptr<Task> make_task_or_drawn(const Recipe& recipe, std::string& assumed,
                                         std::shared_ptr<Ranks> ranks) {
  const GraphSize* size = recipe.data.format == "ogb" ? published_size(recipe.data.dir) : nullptr;
  if (size == nullptr || std::filesystem::exists(recipe.data.dir)) return make_task(recipe, std::move(ranks));
  Graph graph = prepare_graph(draw_graph(*size, recipe.training.seed), recipe);
  assumed = fmt::format("{}: no such folder; {}", recipe.data.dir, graph.describe());
  return std::make_unique<NodeClassification>(recipe, std::move(graph), std::move(ranks));
}

TaskShape shape_of_task(const Recipe& recipe) {
  if (task_of(recipe.data) == TaskKind::kImages) return shape_of_image_task(recipe);
  if (task_of(recipe.data) == TaskKind::kDetection) return shape_of_detection(recipe);
  std::string assumed;
  const auto task = make_task_or_drawn(recipe, assumed);
  return {.layers = task->layers(),
          .sizes = layer_sizes(task->model(), task->layers()),
          .steps_per_epoch = task->steps_per_epoch(),
          .items_per_step = task->items_per_step(),
          .assumed = assumed};
}

}  // namespace lowtide
