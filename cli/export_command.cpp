#include <fmt/format.h>

#include <filesystem>

#include "cli/commands.h"
#include "cli/parse.h"
#include "cli/runtime.h"
#include "lowtide/base/error.h"
#include "lowtide/base/suggest.h"
#include "lowtide/export/export_network.h"
#include "lowtide/export/graph_runner.h"
#include "lowtide/export/published_weights.h"
#include "lowtide/io/standard_output.h"
#include "lowtide/tasks/task.h"
#include "lowtide/train/checkpoint.h"
#include "lowtide/train/metric.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

constexpr const char* kForms = "exact|qdq|safetensors";

struct ExportArguments {
  std::string checkpoint, out, form = "exact", data_dir;
  int bits = -1, threads = 0;
  bool json = false;
};

std::optional<int> read_arguments(ExportArguments& arguments, int argc, char** argv) {
  CLI::App app("Write a trained network for other programs: as an ONNX file, or its weights alone.",
               "export");
  app.add_option("--checkpoint", arguments.checkpoint, "a file in the checkpoints folder of a run")
      ->required()
      ->type_name("FILE");
  app.add_option("--out", arguments.out, "file to write; - is standard output")
      ->required()
      ->check(no_file_of_a_run())
      ->type_name("FILE");
  app.add_option(
         "--form", arguments.form,
         "exact: ONNX, equal to the evaluation here; qdq: ONNX for integer kernels, with its measured "
         "accuracy; safetensors: fp32 weights under the names of torchvision or transformers")
      ->capture_default_str()
      ->type_name(kForms);
  app.add_option("--bits", arguments.bits,
                 "of the evaluation that is written; 0: fp32; -1: as its recipe says")
      ->capture_default_str();
  app.add_option("--data-dir", arguments.data_dir, "folder of the data set; default: as its recipe says")
      ->type_name("FOLDER");
  app.add_option("--threads", arguments.threads, "0: all cores")->capture_default_str();
  app.add_flag("--json", arguments.json, "print one JSON object");
  if (const auto code = parse(app, argc, argv)) return code;
  expect_choice("form", arguments.form, kForms);
  std::error_code none;
  if (fs::equivalent(arguments.checkpoint, arguments.out, none))
    throw UserError(
        fmt::format("--out {} is the checkpoint that is read; choose another name", arguments.out));
  if (arguments.form == "safetensors" && arguments.bits != -1)
    throw UserError("--bits is of a network that computes; the weights of --form safetensors are fp32");
  return std::nullopt;
}

Recipe recipe_of(const ExportArguments& arguments, const Json& state) {
  Recipe recipe = recipe_from_json(state.value("recipe", Json()), arguments.checkpoint);
  if (!arguments.data_dir.empty()) recipe.data.dir = arguments.data_dir;
  if (arguments.bits != -1) recipe.precision.eval_bits = arguments.bits;
  recipe.running.device = "cpu";
  // The checkpoint has all weights; a folder of published ones also says what the network is.
  if (!fs::is_directory(recipe.model.weights)) recipe.model.weights.clear();
  recipe.precision.engine = "auto";
  check(recipe);
  return recipe;
}

// On the test set: as this program evaluates, and as the graph that is exported computes.
struct Measured {
  Evaluation here, exported;
};

Measured measure(Task& task, const OnnxGraph& graph, Bits bits) {
  Measured measured;
  measured.here = task.evaluate(Split::kTest, bits);
  task.set_stand_in(GraphRunner(graph));
  measured.exported = task.evaluate(Split::kTest, bits);
  return measured;
}

// What a program that runs the file has to know and the graph does not say.
std::map<std::string, std::string> metadata_of(const Json& about, const DataOptions& data) {
  std::map<std::string, std::string> metadata;
  for (const auto& [key, value] : about.items())
    metadata["lowtide." + key] = value.is_string() ? value.get<std::string>() : value.dump();
  if (!data.mean.empty()) metadata["lowtide.mean"] = Json(data.mean).dump();
  if (!data.std.empty()) metadata["lowtide.std"] = Json(data.std).dump();
  if (!data.classes.empty()) metadata["lowtide.classes"] = Json(data.classes).dump();
  return metadata;
}

void print_text(const ExportArguments& arguments, const Recipe& recipe, Task& task, Bits bits,
                const std::optional<Measured>& measured, std::size_t bytes) {
  std::FILE* where = message_stream(arguments.out);
  fmt::print(where, "{}: {}, form {}, {}, {:.1f} MB\n", arguments.out, recipe.model.name, arguments.form,
             bits_name(bits.forward), static_cast<double>(bytes) / 1e6);
  if (!measured) return;
  const Metric& metric = find_metric(task.metric_name());
  const auto line = [&](const char* what, const Evaluation& evaluation) {
    fmt::print(where, "test {} {}, loss {:.4f}, {}, {} {}\n", metric.name,
               metric_text(metric, evaluation.metric), evaluation.loss, what, evaluation.items,
               task.item_name());
  };
  line("evaluated here", measured->here);
  line("of the exported network", measured->exported);
}

int export_onnx(const ExportArguments& arguments, const Recipe& recipe) {
  prepare_torch(arguments.threads);
  const auto task = make_task(recipe);
  read_checkpoint_tensors(arguments.checkpoint, model_tensors(task->model()));
  const Bits bits = evaluation_bits(recipe.precision);
  const ExportOptions options{arguments.form == "qdq" ? ExportForm::kQdq : ExportForm::kExact, bits};
  const OnnxGraph graph = export_network(task->model(), recipe.model.name, options, recipe.data.length);
  Json about{{"model", recipe.model.name}, {"form", arguments.form}, {"bits", bits.forward}};
  std::optional<Measured> measured;
  if (options.form == ExportForm::kQdq) {
    measured = measure(*task, graph, bits);
    about["test"] = {{"metric", task->metric_name()},
                     {"evaluated", measured->here.metric},
                     {"exported", measured->exported.metric},
                     {"items", measured->here.items}};
  }
  const std::string file = serialise(graph, metadata_of(about, recipe.data));
  write_output(arguments.out, file);
  if (arguments.json) {
    about["bytes"] = file.size();
    fmt::print(message_stream(arguments.out), "{}\n", about.dump());
  } else {
    print_text(arguments, recipe, *task, bits, measured, file.size());
  }
  return 0;
}

int export_weights(const ExportArguments& arguments, const SafetensorsFile& checkpoint, const Json& state,
                   const Recipe& recipe) {
  if (state.at("format") > kUnsealedFormat) check_sealed_data(checkpoint.content(), arguments.checkpoint);
  const std::vector<TensorView> weights = published_weights(checkpoint, recipe.model.name);
  const EncodedSafetensors encoded = encode_safetensors(weights, {{"format", "pt"}});
  write_output(arguments.out, [&](FileWriter& file) {
    file.write(bytes_of(encoded.header));
    for (const ByteSpan& data : encoded.data) file.write(data);
  });
  std::FILE* where = message_stream(arguments.out);
  if (arguments.json) {
    const Json about{{"model", recipe.model.name}, {"form", arguments.form}, {"tensors", weights.size()}};
    fmt::print(where, "{}\n", about.dump());
  } else {
    fmt::print(where, "{}: {} tensors of {}\n", arguments.out, weights.size(), recipe.model.name);
  }
  return 0;
}

}  // namespace

int export_command(int argc, char** argv) {
  ExportArguments arguments;
  if (const auto code = read_arguments(arguments, argc, argv)) return *code;
  const SafetensorsFile checkpoint(arguments.checkpoint);
  const Json state = checkpoint_state(checkpoint, arguments.checkpoint);
  const Recipe recipe = recipe_of(arguments, state);
  if (arguments.form == "safetensors") return export_weights(arguments, checkpoint, state, recipe);
  return export_onnx(arguments, recipe);
}

}  // namespace lowtide
