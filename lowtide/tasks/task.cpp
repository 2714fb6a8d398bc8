#include "lowtide/tasks/task.h"

#include <fmt/format.h>

#include "lowtide/base/error.h"
#include "lowtide/data/image_dataset.h"
#include "lowtide/tasks/image_classification.h"
#include "lowtide/tasks/image_setup.h"

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

}  // namespace

std::unique_ptr<Task> make_task(const Recipe& recipe) {
  return std::make_unique<ImageClassification>(recipe);
}

TaskShape shape_of_task(const Recipe& recipe) {
  ImageShape shape;
  TaskShape result;
  try {
    const auto data = open_image_dataset(recipe.data, recipe.data_dir, Split::kTrain);
    shape = {data->channels(), data->height(), data->width(), data->classes()};
    result.train_items = data->size();
  } catch (const UserError& missing) {
    for (const PublishedData& published : kPublished) {
      if (published.format != recipe.data) continue;
      shape = published.shape;
      result.train_items = published.train_items;
      result.assumed = fmt::format("{}; counted for {}: {} images of {} classes", missing.what(),
                                   published.name, published.train_items, shape.classes);
    }
  }
  result.train_items -= recipe.validation;
  augmentations_of(recipe, shape);
  const auto execution = make_execution(recipe);
  const auto model = make_image_model(recipe, shape, execution);
  result.layers = layers_of(*model, *execution, shape);
  return result;
}

}  // namespace lowtide
