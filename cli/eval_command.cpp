#include <fmt/format.h>

#include <filesystem>

#include "cli/commands.h"
#include "cli/parse.h"
#include "cli/run_weights.h"
#include "cli/runtime.h"
#include "lowtide/base/error.h"
#include "lowtide/base/suggest.h"
#include "lowtide/tasks/task.h"
#include "lowtide/train/checkpoint.h"
#include "lowtide/train/metric.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

struct EvalArguments {
  std::string run, checkpoint, data_dir, language, device = "cpu", split = "test";
  int bits = -1, threads = 0;
  bool best = false, json = false;
};

constexpr const char* kEvalSplits = "test|valid";

std::optional<int> read_arguments(EvalArguments& arguments, int argc, char** argv) {
  CLI::App app("Evaluate a run, or a checkpoint, at a declared precision.", "eval");
  app.add_option("RUN", arguments.run, "run folder: its averaged weights, or its last checkpoint")
      ->type_name("FOLDER");
  app.add_flag("--best", arguments.best, "of RUN the weights that --keep-best kept");
  app.add_option("--checkpoint", arguments.checkpoint, "a file in the checkpoints folder of a run")
      ->type_name("FILE");
  app.add_option("--eval-bits", arguments.bits, "bits; 0: fp32; -1: as its recipe says")
      ->capture_default_str();
  app.add_option("--split", arguments.split, "which items")->capture_default_str()->type_name(kEvalSplits);
  app.add_option("--data-dir", arguments.data_dir, "folder of the data set; default: as its recipe says")
      ->type_name("FOLDER");
  app.add_option("--language", arguments.language, "of xnli's pairs; default: as its recipe says");
  app.add_option("--device", arguments.device, "where it is computed")
      ->capture_default_str()
      ->type_name(kDevices);
  app.add_option("--threads", arguments.threads, "0: all cores")->capture_default_str();
  app.add_flag("--json", arguments.json, "print one JSON object");
  if (const auto code = parse(app, argc, argv)) return code;
  expect_choice("split", arguments.split, kEvalSplits);
  expect_choice("device", arguments.device, kDevices);
  if (arguments.run.empty() == arguments.checkpoint.empty())
    throw UserError("expected one of RUN, a run folder, and --checkpoint FILE");
  if (arguments.best && arguments.run.empty())
    throw UserError("--best is of a run; expected its folder in place of --checkpoint");
  return std::nullopt;
}

// The weights, and the recipe that they were trained by.
struct Trained {
  fs::path checkpoint;
  Recipe recipe;
};

Trained find_trained(const EvalArguments& arguments) {
  if (arguments.run.empty()) {
    const Json state = read_checkpoint_state(arguments.checkpoint);
    return {arguments.checkpoint, recipe_from_json(state.value("recipe", Json()), arguments.checkpoint)};
  }
  if (fs::is_regular_file(arguments.run))
    throw UserError(
        fmt::format("{}: a file; expected a run folder, or --checkpoint before it", arguments.run));
  const RunPaths run{arguments.run};
  const Recipe recipe = read_run_recipe(run);
  return {arguments.best ? best_weights(run) : last_weights(run), recipe};
}

void choose_language(Recipe& recipe, const EvalArguments& arguments) {
  if (arguments.language.empty()) return;
  if (recipe.data.format != "xnli")
    throw UserError(fmt::format("--language is for xnli; this run's data is {}", recipe.data.format));
  if (arguments.split == "valid" && recipe.data.validation > 0) {
    throw UserError(fmt::format("this run held out training pairs, which are in '{}'; evaluate --split test",
                                recipe.data.language));
  }
  recipe.data.test_language = arguments.language;
}

Recipe evaluation_recipe(Recipe recipe, const EvalArguments& arguments) {
  if (!arguments.data_dir.empty()) recipe.data.dir = arguments.data_dir;
  if (arguments.bits != -1) recipe.precision.eval_bits = arguments.bits;
  recipe.running.device = arguments.device;
  // The checkpoint has all weights; a folder of published ones also says what the network is.
  if (!fs::is_directory(recipe.model.weights)) recipe.model.weights.clear();
  recipe.precision.engine = "auto";  // of the machine that evaluates, not of the one that trained
  choose_language(recipe, arguments);
  check(recipe);
  return recipe;
}

}  // namespace

int eval_command(int argc, char** argv) {
  EvalArguments arguments;
  if (const auto code = read_arguments(arguments, argc, argv)) return *code;
  const Trained trained = find_trained(arguments);
  const Recipe recipe = evaluation_recipe(trained.recipe, arguments);
  prepare_torch(arguments.threads);
  const auto task = make_task(recipe);
  read_checkpoint_tensors(trained.checkpoint, model_tensors(task->model()));
  const Split split = arguments.split == "test" ? Split::kTest : Split::kValid;
  if (!task->has(split)) throw UserError("this run held no items out; evaluate --split test");
  const Bits eval_bits = evaluation_bits(recipe.precision);
  const Evaluation result = task->evaluate(split, eval_bits);
  if (arguments.json) {
    Json line{{"checkpoint", trained.checkpoint.string()},
              {"step", read_checkpoint_state(trained.checkpoint).value("step", 0)},
              {"split", arguments.split},
              {task->metric_name(), result.metric},
              {"loss", result.loss},
              {"eval_bits", eval_bits.forward},
              {"items", result.items}};
    if (!arguments.language.empty()) line["language"] = arguments.language;
    line.update(result.also);
    fmt::print("{}\n", line.dump());
  } else {
    const Metric& metric = find_metric(task->metric_name());
    fmt::print("{} {} {}, loss {:.4f}, at {}, {} {}\n", arguments.split, metric.name,
               metric_text(metric, result.metric), result.loss, bits_name(eval_bits.forward), result.items,
               task->item_name());
  }
  return 0;
}

}  // namespace lowtide
