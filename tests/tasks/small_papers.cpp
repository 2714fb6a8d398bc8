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
  recipe.data = "citation";
  recipe.data_dir = data.string();
  recipe.node_split = "0.5:0.2";
  recipe.node_features = "normalise";
  recipe.model = "gcn";
  recipe.layers = 2;
  recipe.hidden = 16;
  recipe.dropout = 0.3;
  recipe.cycles = 4;
  recipe.steps = 40;
  recipe.batch = 16;
  recipe.optimizer = "adam";
  recipe.lr = 0.01;
  recipe.lr_schedule = "constant";
  recipe.log_every = 7;
  recipe.eval_every = 13;
  recipe.checkpoint_every = 1;
  recipe.keep_checkpoints = 1000;
  return recipe;
}

}  // namespace lowtide
