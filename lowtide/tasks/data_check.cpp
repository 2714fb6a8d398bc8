#include "lowtide/tasks/data_check.h"

#include <algorithm>
#include <functional>

#include "lowtide/base/error.h"
#include "lowtide/data/damaged.h"
#include "lowtide/data/detection/voc.h"
#include "lowtide/tasks/entailment.h"
#include "lowtide/tasks/language_modelling.h"
#include "lowtide/tasks/node_data.h"

namespace lowtide {
namespace {

constexpr std::pair<Split, const char*> kSplits[] = {
    {Split::kTrain, "train"}, {Split::kValid, "valid"}, {Split::kTest, "test"}};

// A part whose reading may fail as a whole.
void add_part(DataCheck& check, const std::string& name, const std::string& item_name,
              const std::function<void(DataPart&)>& read) {
  DataPart part{.name = name, .item_name = item_name};
  try {
    read(part);
  } catch (const UserError& error) {
    part.failure = error.what();
  }
  check.parts.push_back(std::move(part));
}

void widen(SideRange& range, int side) {
  range.least = range.most == 0 ? side : std::min(range.least, side);
  range.most = std::max(range.most, side);
}

std::vector<std::pair<std::string, std::int64_t>> no_items_of(const std::vector<std::string>& names) {
  std::vector<std::pair<std::string, std::int64_t>> classes;
  for (const std::string& name : names) classes.emplace_back(name, 0);
  return classes;
}

void check_images(const DataOptions& options, Split split, DataPart& part) {
  struct Size {
    int height = 0, width = 0;
  };
  const auto data = open_image_dataset(options.format, options.dir, split);
  std::vector<Size> sizes(static_cast<std::size_t>(data->size()));
  const auto damaged = find_damaged(data->size(), [&](std::int64_t i) {
    const Image image = data->image(i);
    sizes[static_cast<std::size_t>(i)] = {image.height, image.width};
  });
  for (const DamagedItem& item : damaged) part.damaged.push_back(item.problem);
  for (int label = 0; label < data->classes(); ++label) part.classes.emplace_back(data->class_name(label), 0);
  for (std::int64_t i = 0; i < data->size(); ++i) {
    const Size& size = sizes[static_cast<std::size_t>(i)];
    if (size.height == 0) continue;  // damaged
    ++part.items;
    ++part.classes[static_cast<std::size_t>(data->label(i))].second;
    widen(part.heights, size.height);
    widen(part.widths, size.width);
  }
  part.counted = "images";
  part.note = data->describe();
}

void check_objects(const VocDataset& data, DataPart& part) {
  part.items = data.size();
  part.damaged = data.damaged();
  part.classes = no_items_of(data.classes());
  part.counted = "objects";
  for (std::int64_t i = 0; i < data.size(); ++i) {
    const VocAnnotation& annotation = data.annotation(i);
    widen(part.heights, annotation.height);
    widen(part.widths, annotation.width);
    for (const VocObject& object : annotation.objects)
      ++part.classes[static_cast<std::size_t>(object.label)].second;
  }
}

void check_detection(const DataOptions& options, DataCheck& check) {
  VocOptions reading{options.classes, /*skip_damaged=*/true};
  add_part(check, "train", "images", [&](DataPart& part) {
    const VocDataset data(options.dir, options.train_set, reading);
    reading.classes = data.classes();
    check_objects(data, part);
  });
  add_part(check, "test", "images",
           [&](DataPart& part) { check_objects(VocDataset(options.dir, options.test_set, reading), part); });
}

// One reading gives all parts, or the reason why there are none.
void check_text(const DataOptions& options, DataCheck& check) {
  Corpus corpus;
  std::string failure;
  try {
    corpus = open_corpus(options);
  } catch (const UserError& error) {
    failure = error.what();
  }
  for (const auto& [split, name] : kSplits) {
    DataPart part{.name = name, .item_name = "tokens"};
    part.items = static_cast<std::int64_t>(corpus.of(split).size());
    if (split == Split::kTrain) {
      part.failure = failure;
      part.note = corpus.describe();
    }
    check.parts.push_back(std::move(part));
    if (!failure.empty()) return;
  }
}

void check_nodes(const Recipe& recipe, DataCheck& check) {
  add_part(check, "graph", "nodes", [&](DataPart& part) {
    const Graph graph = open_nodes(recipe);
    part.items = graph.nodes;
    for (int label = 0; label < graph.classes; ++label) part.classes.emplace_back(std::to_string(label), 0);
    for (const std::int32_t label : graph.labels) ++part.classes[static_cast<std::size_t>(label)].second;
    part.counted = "nodes";
    part.note = graph.describe();
  });
}

void check_pairs(const DataOptions& options, DataCheck& check) {
  DataOptions with_classes = options;
  for (const auto& [split, name] : kSplits) {
    if (split != Split::kTrain && !has_pairs(options, split)) continue;
    add_part(check, name, "pairs", [&, split = split](DataPart& part) {
      const EntailmentData data = open_pairs(with_classes, split);
      if (options.format == "pairs" && split == Split::kTrain) with_classes.classes = data.classes;
      part.items = static_cast<std::int64_t>(data.pairs.size());
      part.classes = no_items_of(data.classes);
      for (const SentencePair& pair : data.pairs) {
        if (pair.label != SentencePair::kNoLabel) ++part.classes[static_cast<std::size_t>(pair.label)].second;
      }
      part.counted = "pairs";
      part.note = data.describe();
    });
  }
}

}  // namespace

std::size_t DataCheck::damaged() const {
  std::size_t count = 0;
  for (const DataPart& part : parts) count += part.damaged.size();
  return count;
}

bool DataCheck::failed() const {
  return std::any_of(parts.begin(), parts.end(), [](const DataPart& part) { return !part.failure.empty(); });
}

DataCheck check_data(const Recipe& recipe) {
  DataCheck check;
  switch (task_of(recipe.data)) {
    case TaskKind::kImages:
      for (const auto& [split, name] : {kSplits[0], kSplits[2]})
        add_part(check, name, "images",
                 [&, split = split](DataPart& part) { check_images(recipe.data, split, part); });
      break;
    case TaskKind::kDetection:
      check_detection(recipe.data, check);
      break;
    case TaskKind::kLanguage:
      check_text(recipe.data, check);
      break;
    case TaskKind::kNodes:
      check_nodes(recipe, check);
      break;
    case TaskKind::kEntailment:
      check_pairs(recipe.data, check);
      break;
  }
  return check;
}

}  // namespace lowtide
