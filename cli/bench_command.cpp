#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/parse.h"
#include "cli/runtime.h"
#include "lowtide/base/error.h"
#include "lowtide/bench/memory_meter.h"
#include "lowtide/bench/step_bench.h"
#include "lowtide/schedule/text.h"

namespace lowtide {
namespace {

void print_table(const StepBenchOptions& options, const std::vector<StepTiming>& timings) {
  fmt::print("{}, batch {}, {} threads, bits {}/{}\n\n", options.model, options.batch, at::get_num_threads(),
             options.bits.forward, options.bits.backward);
  fmt::print("{:<12} {:>10} {:>10} {:>12} {:>14}\n", "engine", "ms", "fastest", "images/s", "peak MiB");
  for (const StepTiming& timing : timings) {
    fmt::print("{:<12} {:>10.1f} {:>10.1f} {:>12.0f} {:>14.1f}   {:.2f} x the time of {}\n", timing.engine,
               timing.milliseconds, timing.fastest,
               1000.0 * static_cast<double>(options.batch) / timing.milliseconds,
               static_cast<double>(timing.peak_bytes) / (1 << 20),
               timing.milliseconds / timings[0].milliseconds, timings[0].engine);
  }
}

Json to_json(const StepBenchOptions& options, const std::vector<StepTiming>& timings) {
  Json engines = Json::object();
  for (const StepTiming& timing : timings) {
    engines[timing.engine] = {
        {"ms", timing.milliseconds}, {"fastest_ms", timing.fastest}, {"peak_bytes", timing.peak_bytes}};
  }
  return {{"model", options.model},
          {"batch", options.batch},
          {"threads", at::get_num_threads()},
          {"device", options.device},
          {"bits", {options.bits.forward, options.bits.backward}},
          {"engines", engines}};
}

}  // namespace

int bench_command(int argc, char** argv) {
  StepBenchOptions options;
  std::string what, engines = "fp32,simulated";
  int threads = 0;
  bool json = false;
  CLI::App app(
      "Time whole training steps (forward, backward, update) and their peak memory, engine by engine.",
      "bench");
  app.add_option("WHAT", what, "step")->required();
  app.add_option("--model", options.model, "a name from `lowtide models`")->capture_default_str();
  app.add_option("--batch", options.batch, "images a step")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--engines", engines, "comma-separated: fp32 (no quantisation), simulated")
      ->capture_default_str();
  app.add_option("--bits", options.bits.forward, "forward bits")
      ->capture_default_str()
      ->check(CLI::Range(2, 32));
  app.add_option("--grad-bits", options.bits.backward, "gradient bits")
      ->capture_default_str()
      ->check(CLI::Range(2, 32));
  app.add_option("--image-size", options.image_size, "0: the model's own")->capture_default_str();
  app.add_option("--repeat", options.repeat, "rounds; the median counts")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--device", options.device, "cpu or cuda")
      ->capture_default_str()
      ->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--threads", threads, "0: all cores")->capture_default_str();
  app.add_flag("--json", json, "print one JSON object");
  if (const auto code = parse(app, argc, argv)) return *code;
  if (what != "step") throw UserError(fmt::format("bench: unknown benchmark '{}'; expected step", what));
  options.engines.clear();
  for (const std::string_view engine : split(engines, ',')) options.engines.emplace_back(engine);
  prepare_torch(threads);
  MemoryMeter::install();
  const std::vector<StepTiming> timings = bench_step(options);
  if (json) {
    fmt::print("{}\n", to_json(options, timings).dump());
  } else {
    print_table(options, timings);
  }
  return 0;
}

}  // namespace lowtide
