#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <map>

#include "cli/commands.h"
#include "cli/parse.h"
#include "cli/run_weights.h"
#include "cli/runtime.h"
#include "lowtide/base/error.h"
#include "lowtide/base/suggest.h"
#include "lowtide/report/landscape.h"
#include "lowtide/study/landscape.h"
#include "lowtide/tasks/task.h"
#include "lowtide/train/checkpoint.h"
#include "lowtide/train/progress.h"
#include "lowtide/train/run_folder.h"
#include "lowtide/train/weight_plane.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLandscapeSplits = "train|valid|test";

struct Arguments {
  std::vector<std::string> checkpoints;
  int grid = 21;
  double span = 1;
  std::int64_t items = 2000;
  std::string split = "train";
  std::uint64_t seed = 1;
  int bits = -1;
  std::string data_dir, device = "cpu";
  int threads = 0;
};

std::optional<int> read_arguments(Arguments& arguments, int argc, char** argv) {
  CLI::App app(
      "The loss over two random directions around trained weights (Li et al. 2018): each filter of a "
      "direction "
      "is as\nlong as the model's own, biases and normalisations stay. Several checkpoints are seen along "
      "the "
      "same directions.\nWrites landscape.json into the run's folder, which `lowtide report` draws.",
      "study landscape");
  app.add_option("--checkpoint", arguments.checkpoints,
                 "run folders (their last weights), or checkpoints in such")
      ->required()
      ->type_name("PATH");
  app.add_option("--grid", arguments.grid, "positions along a direction, an odd number")
      ->capture_default_str();
  app.add_option("--span", arguments.span, "how far to either side; 1: as far as the weights are long")
      ->capture_default_str();
  app.add_option("--items", arguments.items, "how many items of the split; 0: all")->capture_default_str();
  app.add_option("--split", arguments.split, "which items")
      ->capture_default_str()
      ->type_name(kLandscapeSplits);
  app.add_option("--seed", arguments.seed, "of the directions")->capture_default_str();
  app.add_option("--bits,--eval-bits", arguments.bits, "0: fp32; -1: as the run evaluates")
      ->capture_default_str();
  app.add_option("--data-dir", arguments.data_dir,
                 "folder of the data set; default: as the run's recipe says")
      ->type_name("FOLDER");
  app.add_option("--device", arguments.device, "where it is computed")
      ->capture_default_str()
      ->type_name(kDevices);
  app.add_option("--threads", arguments.threads, "0: all cores")->capture_default_str();
  if (const auto code = parse(app, argc, argv)) return code;
  expect_choice("split", arguments.split, kLandscapeSplits);
  expect_choice("device", arguments.device, kDevices);
  return std::nullopt;
}

Split split_of(const std::string& name) {
  static const std::map<std::string, Split> splits{
      {"train", Split::kTrain}, {"valid", Split::kValid}, {"test", Split::kTest}};
  return splits.at(name);
}

struct TrainedRun {
  RunPaths run;
  fs::path checkpoint;
};

TrainedRun find_trained(const fs::path& given) {
  if (!file_exists(given))
    throw UserError(
        fmt::format("{}: no such file; expected a run folder, or a checkpoint in one", given.string()));
  if (fs::is_directory(given)) {
    const RunPaths run{given};
    if (!file_exists(run.run()))
      throw UserError(fmt::format("{}: not a run folder: it has no run.json", given.string()));
    return {run, last_weights(run)};
  }
  const fs::path parent = fs::absolute(given).parent_path();
  for (const fs::path& folder : {parent.parent_path(), parent}) {
    if (file_exists(RunPaths{folder}.run())) return {RunPaths{folder}, given};
  }
  throw UserError(fmt::format(
      "{}: not in a run folder: there is no run.json beside it or in the folder above", given.string()));
}

std::vector<TrainedRun> find_all(const std::vector<std::string>& given) {
  std::vector<TrainedRun> all;
  std::map<fs::path, std::string> seen;
  for (const std::string& path : given) {
    all.push_back(find_trained(path));
    const auto [other, is_new] = seen.emplace(fs::weakly_canonical(all.back().run.folder), path);
    if (!is_new)
      throw UserError(fmt::format(
          "{} and {} are of one run, whose landscape.json holds one; give one of them", other->second, path));
    // Not after minutes of work.
    if (access(all.back().run.folder.c_str(), W_OK) != 0)
      throw UserError(fmt::format("{}: this folder cannot be written to, and landscape.json belongs there",
                                  all.back().run.folder.string()));
  }
  return all;
}

Recipe recipe_of(const TrainedRun& trained, const Arguments& arguments) {
  Recipe recipe = read_run_recipe(trained.run);
  if (!arguments.data_dir.empty()) recipe.data.dir = arguments.data_dir;
  if (arguments.bits != -1) recipe.precision.eval_bits = arguments.bits;
  recipe.running.device = arguments.device;
  recipe.precision.engine = "auto";  // of the machine that evaluates, not of the one that trained
  check(recipe);
  return recipe;
}

std::string title_of(const TrainedRun& trained, const Json& state) {
  const std::string name = fs::weakly_canonical(trained.run.folder).filename().string();
  const auto step = state.value("step", std::int64_t{0});
  return step == state.value("total_steps", step) ? name : fmt::format("{}, step {}", name, step);
}

void show_progress(const std::string& title, std::size_t row, std::size_t rows) {
  if (isatty(STDERR_FILENO) != 1) return;
  fmt::print(stderr, "\r{}: row {} of {}\x1b[K{}", title, row, rows, row == rows ? "\r\x1b[K" : "");
}

struct MeasuredPlane {
  std::string title;
  Landscape landscape;
  LandscapeFigures figures;
  Bits bits;
  std::int64_t items = 0;
};

MeasuredPlane measure(Task& task, const Recipe& recipe, const std::string& title,
                      const Arguments& arguments) {
  MeasuredPlane result{
      .title = title, .landscape = {}, .figures = {}, .bits = evaluation_bits(recipe.precision)};
  const Split split = split_of(arguments.split);
  WeightPlane plane(task.model(), arguments.seed);
  const auto loss = [&](double x, double y) {
    plane.move_to(x, y);
    const Evaluation evaluation = arguments.items == 0
                                      ? task.evaluate(split, result.bits)
                                      : task.evaluate_sample(split, result.bits, arguments.items);
    result.items = evaluation.items;
    return evaluation.loss;
  };
  const std::vector<double> axis = landscape_axis(arguments.grid, arguments.span);
  result.landscape =
      measure_landscape(axis, loss, [&](std::size_t row) { show_progress(title, row, axis.size()); });
  result.figures = figures_of(result.landscape);
  return result;
}

void write_file(const fs::path& file, const MeasuredPlane& measured, const TrainedRun& trained,
                const Arguments& arguments) {
  Json json = to_json(measured.landscape);
  json["title"] = measured.title;
  json["checkpoint"] = trained.checkpoint.filename().string();
  json["split"] = arguments.split;
  json["items"] = measured.items;
  json["bits"] = measured.bits.forward;
  json["seed"] = arguments.seed;
  json["sharpness"] = measured.figures.sharpness;
  write_atomically(file, json.dump() + "\n");
}

MeasuredPlane measure_and_write(const TrainedRun& trained, const Arguments& arguments) {
  const auto started = std::chrono::steady_clock::now();
  const std::string title = title_of(trained, read_checkpoint_state(trained.checkpoint));
  const Recipe recipe = recipe_of(trained, arguments);
  const auto task = make_task(recipe);
  read_checkpoint_tensors(trained.checkpoint, model_tensors(task->model()));
  if (!task->has(split_of(arguments.split)))
    throw UserError(fmt::format("{}: the run held no items out; look at --split train or test",
                                trained.run.folder.string()));
  MeasuredPlane measured = measure(*task, recipe, title, arguments);
  const fs::path file = landscape_path(trained.run.folder);
  write_file(file, measured, trained, arguments);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - started;
  fmt::print("{}: {} loss over {} {} at {}, {} × {} positions in {}; wrote {}\n", title, arguments.split,
             measured.items, task->item_name(), bits_name(measured.bits.forward), arguments.grid,
             arguments.grid, duration_text(seconds.count()), file.string());
  std::fflush(stdout);
  return measured;
}

void print_pictures(const std::vector<MeasuredPlane>& all) {
  double lowest = all[0].figures.lowest, highest = all[0].figures.highest;
  for (const MeasuredPlane& one : all) {
    lowest = std::min(lowest, one.figures.lowest);
    highest = std::max(highest, one.figures.highest);
  }
  for (const MeasuredPlane& one : all) {
    const LandscapeFigures& f = one.figures;
    fmt::print(
        "\n{}\n{}loss {:.4f} at the weights (+), from {:.4f} to {:.4g}; sharpness {:.2f} within {:.3g}\n",
        one.title, shade_picture(one.landscape, lowest, highest, terminal_charset()), f.centre, f.lowest,
        f.highest, f.sharpness, f.radius);
  }
}

}  // namespace

int landscape_command(int argc, char** argv) {
  Arguments arguments;
  if (const auto code = read_arguments(arguments, argc, argv)) return *code;
  // Before anything is loaded.
  split_of(arguments.split);
  landscape_axis(arguments.grid, arguments.span);
  if (arguments.items < 0)
    throw UserError(fmt::format("items is {}; expected 1 or more, or 0 for all", arguments.items));
  const std::vector<TrainedRun> all = find_all(arguments.checkpoints);
  prepare_torch(arguments.threads);
  std::vector<MeasuredPlane> measured;
  measured.reserve(all.size());
  for (const TrainedRun& trained : all) measured.push_back(measure_and_write(trained, arguments));
  print_pictures(measured);
  return 0;
}

}  // namespace lowtide
