#include "tests/tasks/small_papers.h"

#include <fstream>

#include "lowtide/base/random.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

constexpr int kPapers = 120, kClasses = 3, kWords = 30;

}  // namespace

void write_papers(const fs::path& folder) {
  fs::create_directories(folder);
  std::ofstream content(folder / "small.content"), cites(folder / "small.cites");
  RandomStream random(5, RandomPurpose::kSplit, 0);
  for (int paper = 0; paper < kPapers; ++paper) {
    const int label = paper % kClasses;
    content << "paper" << paper;
    for (int word = 0; word < kWords; ++word) {
      const bool of_class = word % kClasses == label;
      content << '\t' << (random.below(10) < (of_class ? 4u : 1u) ? 1 : 0);
    }
    content << "\tclass" << label << '\n';
    for (int i = 0; i < 4; ++i) {
      const int cited = static_cast<int>(random.below(kPapers / kClasses)) * kClasses + label;
      cites << "paper" << cited << "\tpaper" << paper << '\n';
    }
  }
}

Recipe node_recipe(const fs::path& data) {
  Recipe recipe;
  recipe.data.format = "citation";
  recipe.data.dir = data.string();
  recipe.data.node_split = "0.5:0.2";
  recipe.data.node_features = "normalise";
  recipe.model.name = "gcn";
  recipe.model.layers = 2;
  recipe.model.hidden = 16;
  recipe.model.dropout = 0.3;
  recipe.precision.cycles = 4;
  recipe.training.steps = 40;
  recipe.training.batch = 16;
  recipe.training.optimizer = "adam";
  recipe.training.lr = 0.01;
  recipe.training.lr_schedule = "constant";
  recipe.running.log_every = 7;
  recipe.running.eval_every = 13;
  recipe.running.checkpoint_every = 1;
  recipe.running.keep_checkpoints = 1000;
  return recipe;
}

}  // namespace lowtide
