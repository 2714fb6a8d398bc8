#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "cli/as_rank.h"
#include "cli/commands.h"
#include "cli/parse.h"
#include "cli/recipe_arguments.h"
#include "cli/runtime.h"
#include "lowtide/base/error.h"
#include "lowtide/base/suggest.h"
#include "lowtide/bench/layer_bench.h"
#include "lowtide/bench/ranks_bench.h"
#include "lowtide/bench/stage_bench.h"
#include "lowtide/bench/step_bench.h"
#include "lowtide/schedule/text.h"
#include "lowtide/train/local_ranks.h"

namespace lowtide {
namespace {

const std::string& model_of(const StepBenchOptions& options) {
  return options.recipe ? options.recipe->model.name : options.model;
}

void print_peaks(const MachinePeaks& peaks, const std::string& device) {
  fmt::print(
      "\nroofline: {:.0f} GB/s of a copy; multiply-accumulates {:.0f} G/s of floats{}, {:.0f} of bytes\n",
      peaks.bytes * 1e-9, peaks.float_macs * 1e-9,
      device == "cuda" ? fmt::format(", {:.0f} as TF32", peaks.tf32_macs * 1e-9) : "",
      peaks.byte_macs * 1e-9);
}

Json to_json(const MachinePeaks& peaks) {
  return {{"bytes_per_s", peaks.bytes},
          {"float_macs_per_s", peaks.float_macs},
          {"tf32_macs_per_s", peaks.tf32_macs},
          {"byte_macs_per_s", peaks.byte_macs}};
}

// The line below an engine's times: what a step asks for, and what it was made of.
void print_work(const StepTiming& timing) {
  fmt::print("{:<16} at the least {:.3f} ms: {:.2f} GB, {:.1f} G multiply-accumulates\n", "",
             timing.least_milliseconds, timing.least.bytes * 1e-9, timing.least.macs() * 1e-9);
  if (timing.kernels > 0)
    fmt::print("{:<16} {} kernels in one CUDA graph; {} captured\n", "", timing.kernels, timing.captures);
  if (!timing.simulated.empty()) fmt::print("{:<16} {}\n", "", timing.simulated);
}

void print_table(const StepBenchOptions& options, const StepBench& bench) {
  const std::vector<StepTiming>& timings = bench.timings;
  fmt::print("{}, {} {} a step, {} threads, bits {}/{}{}\n", model_of(options), timings[0].items,
             timings[0].item_name, at::get_num_threads(), options.bits.forward, options.bits.backward,
             options.recompute ? ", recompute" : "");
  fmt::print("{}\n", timings[0].data.empty() ? "" : timings[0].data + "\n");
  fmt::print("{:<16} {:>10} {:>10} {:>12} {:>14} {:>12}\n", "engine", "ms", "fastest",
             timings[0].item_name + "/s", "peak MiB", "of roofline");
  for (const StepTiming& timing : timings) {
    fmt::print("{:<16} {:>10.2f} {:>10.2f} {:>12.0f} {:>14.1f} {:>10.1f} %   {:.2f} x the time of {}\n",
               timing.engine + (timing.tf32 ? " (TF32)" : ""), timing.milliseconds, timing.fastest,
               1000.0 * static_cast<double>(timing.items) / timing.milliseconds,
               static_cast<double>(timing.peak_bytes) / (1 << 20),
               100 * timing.least_milliseconds / timing.milliseconds,
               timing.milliseconds / timings[0].milliseconds, timings[0].engine);
    print_work(timing);
  }
  print_peaks(bench.peaks, options.device);
}

Json to_json(const StepBenchOptions& options, const StepBench& bench) {
  const std::vector<StepTiming>& timings = bench.timings;
  Json engines = Json::object();
  for (const StepTiming& timing : timings) {
    engines[timing.engine] = {{"ms", timing.milliseconds},
                              {"fastest_ms", timing.fastest},
                              {"peak_bytes", timing.peak_bytes},
                              {"kernels", timing.kernels},
                              {"captures", timing.captures},
                              {"least_bytes", timing.least.bytes},
                              {"least_macs", timing.least.macs()},
                              {"least_ms", timing.least_milliseconds},
                              {"roofline_share", timing.least_milliseconds / timing.milliseconds},
                              {"tf32", timing.tf32}};
  }
  return {{"model", model_of(options)},
          {"batch", options.recipe ? options.recipe->training.batch : options.batch},
          {"items_per_step", timings[0].items},
          {"items", timings[0].item_name},
          {"data", timings[0].data},
          {"threads", at::get_num_threads()},
          {"device", options.device},
          {"bits", {options.bits.forward, options.bits.backward}},
          {"recompute", options.recompute},
          {"peaks", to_json(bench.peaks)},
          {"engines", engines}};
}

// 128 x 16 x 32 x 32 to 16, 3x3, stride 2, 16 groups
std::string shape_text(const ConvShape& s) {
  std::string text = fmt::format("{}x{}x{}x{} to {}, {}x{}", s.input[0], s.input[1], s.input[2], s.input[3],
                                 s.weight[0], s.weight[2], s.weight[3]);
  if (s.stride[0] > 1) text += fmt::format(" /{}", s.stride[0]);
  if (s.groups > 1) text += s.groups == s.input[1] ? " depthwise" : fmt::format(", {} groups", s.groups);
  return text;
}

void print_layers(const LayerBench& bench) {
  fmt::print("{} threads; peak of byte products {:.0f} G/s\n\n", at::get_num_threads(), bench.peak * 1e-9);
  fmt::print("{:<34} {:<16} {:>9} {:>9} {:>9} {:>9} {:>9}\n", "layer", "product", "ms", "fp32 ms", "x fp32",
             "of peak", "error");
  for (const LayerTiming& layer : bench.layers) {
    for (const ProductTiming& t : layer.products) {
      fmt::print("{:<34} {:<16} {:>9.3f} {:>9.3f} {:>9.2f} {:>8.0f}% {:>9.0e}\n", shape_text(layer.shape),
                 t.product, t.milliseconds, t.fp32_milliseconds, t.fp32_milliseconds / t.milliseconds,
                 100 * t.peak_share, t.error);
    }
  }
}

Json to_json(const LayerBench& bench) {
  Json layers = Json::array();
  for (const LayerTiming& layer : bench.layers) {
    Json products = Json::object();
    for (const ProductTiming& t : layer.products) {
      products[t.product] = {{"ms", t.milliseconds},
                             {"fp32_ms", t.fp32_milliseconds},
                             {"peak_share", t.peak_share},
                             {"error", t.error}};
    }
    layers.push_back({{"shape", shape_text(layer.shape)}, {"models", layer.models}, {"products", products}});
  }
  return {{"threads", at::get_num_threads()}, {"peak_products_per_s", bench.peak}, {"layers", layers}};
}

void print_stages(const StageBenchOptions& options, const StageBench& bench) {
  fmt::print("{}, bits {}/{}; ms of a stage, and the share of the roofline\n\n", options.device,
             options.bits.forward, options.bits.backward);
  fmt::print("{:<34} {:<12} {:>10} {:>8} {:>10} {:>8} {:>8}\n", "layer", "engine", "forward", "", "back", "",
             "x " + options.engines[0]);
  for (const StageLayer& layer : bench.layers) {
    const auto all = [](const StageEngineTiming& t) {
      return t.forward.milliseconds + t.backward.milliseconds;
    };
    for (const StageEngineTiming& t : layer.engines) {
      fmt::print("{:<34} {:<12} {:>10.4f} {:>6.0f} % {:>10.4f} {:>6.0f} % {:>8.2f}\n",
                 shape_text(layer.shape), t.engine, t.forward.milliseconds,
                 100 * t.forward.least_milliseconds / t.forward.milliseconds, t.backward.milliseconds,
                 100 * t.backward.least_milliseconds / t.backward.milliseconds,
                 all(t) / all(layer.engines[0]));
    }
  }
  print_peaks(bench.peaks, options.device);
}

Json to_json(const StageTiming& timing) {
  return {{"ms", timing.milliseconds},
          {"least_bytes", timing.least.bytes},
          {"least_macs", timing.least.macs()},
          {"roofline_share", timing.least_milliseconds / timing.milliseconds}};
}

Json to_json(const StageBenchOptions& options, const StageBench& bench) {
  Json layers = Json::array();
  for (const StageLayer& layer : bench.layers) {
    Json engines = Json::object();
    for (const StageEngineTiming& t : layer.engines)
      engines[t.engine] = {{"forward", to_json(t.forward)}, {"backward", to_json(t.backward)}};
    layers.push_back({{"shape", shape_text(layer.shape)}, {"models", layer.models}, {"engines", engines}});
  }
  return {{"device", options.device},
          {"bits", {options.bits.forward, options.bits.backward}},
          {"peaks", to_json(bench.peaks)},
          {"layers", layers}};
}

void print_ranks(const StepBenchOptions& options, std::int64_t shards, int threads, int ranks,
                 const std::vector<RanksTiming>& timings) {
  fmt::print("{}, {} images a step in {} shards, bits {}/{}\n\n", options.model, options.batch, shards,
             options.bits.forward, options.bits.backward);
  fmt::print("{:<16} {:>22} {:>22} {:>8} {:>12} {:>12}\n", "engine",
             fmt::format("1 process x {}, ms", threads),
             fmt::format("{} ranks x {}, ms", ranks, std::max(1, threads / ranks)), "ratio", "exchange ms",
             "sent KiB");
  for (const RanksTiming& t : timings)
    fmt::print("{:<16} {:>22.2f} {:>22.2f} {:>8.2f} {:>12.2f} {:>12.0f}\n", t.engine, t.alone_ms, t.ranks_ms,
               t.ranks_ms / t.alone_ms, t.exchange_ms, static_cast<double>(t.bytes) / 1024);
}

Json to_json(const StepBenchOptions& options, std::int64_t shards, int threads, int ranks,
             const std::vector<RanksTiming>& timings) {
  Json engines = Json::object();
  for (const RanksTiming& t : timings)
    engines[t.engine] = {{"alone_ms", t.alone_ms},
                         {"ranks_ms", t.ranks_ms},
                         {"exchange_ms", t.exchange_ms},
                         {"sent_bytes", t.bytes}};
  return {{"model", options.model}, {"batch", options.batch}, {"shards", shards},
          {"ranks", ranks},         {"threads", threads},     {"engines", engines}};
}

// The ranks are processes of this machine: to be started before there are threads.
int bench_step_on_ranks(const StepBenchOptions& options, std::int64_t shards, int ranks, int threads,
                        bool json) {
  if (shards == 0) shards = ranks;
  if (shards % ranks != 0)
    throw UserError(fmt::format("ranks is {}; expected a divisor of shards, {}", ranks, shards));
  if (options.batch % shards != 0)
    throw UserError(fmt::format("shards is {}; expected a divisor of batch, {}", shards, options.batch));
  int code = 0;
  const auto mine = start_local_ranks(ranks, code, /*saves=*/false);
  if (!mine) return code;
  prepare_torch(threads);
  const int all_threads = at::get_num_threads();
  return work_as_rank(*mine, options.device, "", [&](const std::shared_ptr<C10dRanks>& group) {
    const std::vector<RanksTiming> timings = bench_ranks(options, shards, all_threads, group);
    if (!group->is_first()) return 0;
    if (json) {
      fmt::print("{}\n", to_json(options, shards, all_threads, ranks, timings).dump());
    } else {
      print_ranks(options, shards, all_threads, ranks, timings);
    }
    return 0;
  });
}

std::vector<std::string> names_in(const std::string& list) {
  std::vector<std::string> names;
  for (const std::string_view name : split(list, ',')) names.emplace_back(name);
  return names;
}

}  // namespace

int bench_command(int argc, char** argv) {
  constexpr const char* kWhat = "step|layer";
  constexpr std::int64_t kNone = 0, kOne = 1, kMostCount = std::numeric_limits<std::int64_t>::max();
  StepBenchOptions options;
  std::string what, engines, models, recipe;
  int threads = 0, ranks = 1;
  std::int64_t shards = 0;
  bool json = false;
  CLI::App app(
      "step: time whole training steps (forward, backward, update) and their peak memory, engine by engine.\n"
      "layer: on a CPU, time the integer engine's products on the convolutions of some models, against fp32 "
      "and "
      "the machine's peak, and compare their results with the reference; on a GPU, time the convolutions as "
      "stages of a trunk, engine by engine.\n"
      "The roofline is what a machine could do at the most: the fewest bytes that a step must move and its "
      "multiply-accumulates, at the rates of a large copy and of large products, which are measured too.",
      "bench");
  app.add_option("WHAT", what, "what is timed")->required()->type_name(kWhat);
  app.add_option("--model", options.model, "step: a name from `lowtide models`")
      ->capture_default_str()
      ->type_name("MODEL");
  app.add_option(
         "--recipe", recipe,
         "step: the task, model and data of this recipe, in place of --model; options of recipes, such as "
         "--data-dir, change it")
      ->type_name("RECIPE");
  app.allow_extras();
  app.add_option("--models", models,
                 "layer: comma-separated; default: cifar-resnet20,cifar-mobilenet-v2,resnet18");
  const CLI::Option* batch =
      app.add_option("--batch", options.batch, "images a step; default with --recipe: as it says")
          ->capture_default_str()
          ->check(CLI::Range(kOne, kMostCount));
  app.add_option(
      "--engines", engines,
      "comma-separated: fp32 (no quantisation), simulated, integer on a CPU, cuda on a GPU; on a GPU "
      "fp32 and cuda multiply floats as TF32, as users of PyTorch do; default: all that the device has");
  app.add_option("--bits", options.bits.forward, "forward bits")
      ->capture_default_str()
      ->check(CLI::Range(2, 32));
  app.add_option("--grad-bits", options.bits.backward, "gradient bits")
      ->capture_default_str()
      ->check(CLI::Range(2, 32));
  app.add_flag("--recompute", options.recompute,
               "step: compute what batch norm needs again instead of keeping it");
  app.add_option("--image-size", options.image_size, "step: 0: the model's own")->capture_default_str();
  app.add_option("--repeat", options.repeat, "rounds; the median counts in step, the fastest in layer")
      ->capture_default_str()
      ->check(CLI::Range(kOne, kMostCount));
  app.add_option("--device", options.device, "where it is computed")
      ->capture_default_str()
      ->type_name(kDevices);
  app.add_option("--threads", threads, "0: all cores")->capture_default_str();
  app.add_option(
         "--ranks", ranks,
         "step: time so many processes that share a step and the threads, against one process; on a CPU")
      ->capture_default_str()
      ->check(CLI::Range(kOne, kMostCount));
  app.add_option("--shards", shards, "step: parts of a batch that ranks share out; 0: as many as ranks")
      ->capture_default_str()
      ->check(CLI::Range(kNone, kMostCount));
  app.add_flag("--json", json, "print one JSON object");
  if (const auto code = parse(app, argc, argv)) return *code;
  expect_choice("benchmark", what, kWhat);
  expect_choice("device", options.device, kDevices);
  std::vector<std::string> changes = app.remaining();
  if (recipe.empty() && !changes.empty()) {
    throw UserError(
        fmt::format("bench: {} is not known without --recipe; see `lowtide bench --help`", changes[0]));
  }
  if (!recipe.empty() && *batch) changes.insert(changes.end(), {"--batch", std::to_string(options.batch)});
  if (engines.empty()) engines = options.device == "cuda" ? "fp32,simulated,cuda" : "fp32,simulated,integer";
  options.engines = names_in(engines);
  if (ranks > 1 || shards > 0) {
    if (what != "step" || !recipe.empty() || options.device != "cpu")
      throw UserError("bench: --ranks and --shards time a step of --model on a CPU, nothing else");
    return bench_step_on_ranks(options, shards, ranks, threads, json);
  }
  prepare_torch(threads);
  if (what == "layer" && options.device == "cuda") {
    StageBenchOptions stages{.batch = options.batch,
                             .engines = options.engines,
                             .bits = options.bits,
                             .repeat = options.repeat,
                             .device = options.device};
    if (!models.empty()) stages.models = names_in(models);
    const StageBench bench = bench_stages(stages);
    json ? fmt::print("{}\n", to_json(stages, bench).dump()) : print_stages(stages, bench);
    return 0;
  }
  if (what == "layer") {
    LayerBenchOptions layers{.batch = options.batch, .bits = options.bits, .repeat = options.repeat};
    if (!models.empty()) layers.models = names_in(models);
    const LayerBench bench = bench_layers(layers);
    json ? fmt::print("{}\n", to_json(bench).dump()) : print_layers(bench);
    return 0;
  }
  if (!recipe.empty()) options.recipe = read_recipe(recipe, changes);
  const StepBench bench = bench_step(options);
  if (json) {
    fmt::print("{}\n", to_json(options, bench).dump());
  } else {
    print_table(options, bench);
  }
  return 0;
}

}  // namespace lowtide
