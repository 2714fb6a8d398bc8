#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/parse.h"
#include "cli/runtime.h"
#include "lowtide/base/error.h"
#include "lowtide/tasks/task.h"
#include "lowtide/train/checkpoint.h"
#include "lowtide/train/trainer.h"

namespace lowtide {

int eval_command(int argc, char** argv) {
  std::string checkpoint, data_dir, device = "cpu", split_name = "test";
  int bits = -1, threads = 0;
  bool json = false;
  CLI::App app("Evaluate a checkpoint at a declared precision.", "eval");
  app.add_option("--checkpoint", checkpoint, "a file in the checkpoints folder of a run")->required();
  app.add_option("--eval-bits", bits, "bits; 0: fp32; -1: as its recipe says")->capture_default_str();
  app.add_option("--split", split_name, "test or valid")->capture_default_str();
  app.add_option("--data-dir", data_dir, "folder of the data set; default: as its recipe says");
  app.add_option("--device", device, "cpu or cuda")->capture_default_str();
  app.add_option("--threads", threads, "0: all cores")->capture_default_str();
  app.add_flag("--json", json, "print one JSON object");
  if (const auto code = parse(app, argc, argv)) return *code;
  if (split_name != "test" && split_name != "valid") {
    throw UserError(fmt::format("split is '{}'; expected test or valid", split_name));
  }
  const Json state = read_checkpoint_state(checkpoint);
  Recipe recipe = recipe_from_json(state.value("recipe", Json()), checkpoint);
  if (!data_dir.empty()) recipe.data_dir = data_dir;
  if (bits != -1) recipe.eval_bits = bits;
  recipe.device = device;
  recipe.weights.clear();  // the checkpoint has all of them
  recipe.engine = "auto";  // of the machine that evaluates, not of the one that trained
  check(recipe);
  prepare_torch(threads);
  const auto task = make_task(recipe);
  read_checkpoint_tensors(checkpoint, model_tensors(task->model()));
  const Split split = split_name == "test" ? Split::kTest : Split::kValid;
  if (!task->has(split)) throw UserError("this run held no items out; evaluate --split test");
  const Bits eval_bits = evaluation_bits(recipe);
  const Evaluation result = task->evaluate(split, eval_bits);
  if (json) {
    Json line{{"checkpoint", checkpoint}, {"step", state.value("step", 0)},
              {"split", split_name},      {task->metric_name(), result.metric},
              {"loss", result.loss},      {"eval_bits", eval_bits.forward},
              {"items", result.items}};
    line.update(result.also);
    fmt::print("{}\n", line.dump());
  } else {
    const Metric& metric = find_metric(task->metric_name());
    fmt::print("{} {} {}, loss {:.4f}, at {}, {} {}\n", split_name, metric.name,
               metric_text(metric, result.metric), result.loss, bits_name(eval_bits.forward), result.items,
               task->item_name());
  }
  return 0;
}

}  // namespace lowtide
